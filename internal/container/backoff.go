package container

// Unchanged files are polled less often. Reading one costs 15 to 30 µs, and most say the same for hours. What they say
// is cumulative, so a late reading loses nothing, except the last numbers of a container that ends.
const (
	// backoffAfter is the number of equal readings in a row after which a file is polled less often.
	backoffAfter = 8
	// backoffEvery is how many turns apart it is read then, until it changes.
	backoffEvery = 3
)

// backoff counts the equal readings in a row of a file.
type backoff uint8

// skips reports whether the reading of this turn is left out. Containers that began at different times are
// read in different turns.
func (b backoff) skips(turn, first uint64) bool {
	return b >= backoffAfter && (turn-first)%backoffEvery != 0
}

// note takes note of a reading.
func (b *backoff) note(same bool) {
	switch {
	case !same:
		*b = 0
	case *b < backoffAfter:
		*b++
	}
}
