package container

// Numbers that stay the same rest: a file costs 15 to 30 µs to read, most files of most containers say the
// same for hours, and all they say is cumulative, so a late reading loses no count; but of a container that ends, what its files
// said after the last reading is lost, as it is where they do not rest. Kills by the OOM killer are told by its hook as well.
const (
	// restAfter is the number of readings in a row that must say the same.
	restAfter = 8
	// restEvery is how many readings apart those are that rest, until one says something new.
	restEvery = 3
)

// rest counts the readings in a row that said the same.
type rest uint8

// now tells whether this turn's reading is left out. Containers that began at different times are
// read in different turns.
func (r rest) now(turn, first uint64) bool { return r >= restAfter && (turn-first)%restEvery != 0 }

// read takes note of a reading.
func (r *rest) read(same bool) {
	switch {
	case !same:
		*r = 0
	case *r < restAfter:
		*r++
	}
}
