package framelog

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
)

// entry is where a frame is.
type entry struct {
	time   int64 // nanoseconds since 1970
	number uint64
	offset int64
	// length is that of the whole record. behind is how many frames lie between the key frame and this one.
	length, behind uint32
}

func (e *entry) key() uint64 { return e.number - uint64(e.behind) }

// indexEntryBytes is an entry in the index of a minute: stream, length, behind, a number of 4 bytes that is 0, and
// three of 8 bytes.
const indexEntryBytes = 40

// indexHeaderBytes are the kind, three bytes that are 0, the count of entries and the minute.
const indexHeaderBytes = 16

// streamEntry is an entry of a stream, by the number that the stream has in its segment.
type streamEntry struct {
	stream uint32
	entry
}

func sortEntries(all []streamEntry) {
	slices.SortFunc(all, func(a, b streamEntry) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.number, b.number))
	})
}

// appendIndex appends the record of a minute's index. Entries are sorted by stream and number.
func appendIndex(b []byte, minute int64, entries []streamEntry) []byte {
	return appendRecord(b, func(b []byte) []byte {
		b = append(b, kindIndex, 0, 0, 0)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(entries)))
		b = binary.LittleEndian.AppendUint64(b, uint64(minute))
		for i := range entries {
			e := &entries[i]
			for _, n := range [...]uint32{e.stream, e.length, e.behind, 0} {
				b = binary.LittleEndian.AppendUint32(b, n)
			}
			for _, n := range [...]uint64{e.number, uint64(e.time), uint64(e.offset)} {
				b = binary.LittleEndian.AppendUint64(b, n)
			}
		}
		return b
	})
}

// minuteIndex is the index of a minute as it is in the file.
type minuteIndex struct {
	entries []byte
}

// parseIndex reads the record of an index.
func parseIndex(b []byte, minute int64) (minuteIndex, error) {
	r, err := parseRecord(b)
	switch {
	case err != nil:
		return minuteIndex{}, fmt.Errorf("%w: the index of a minute: %w", errDamaged, err)
	case r.kind != kindIndex || len(r.body) < indexHeaderBytes ||
		int64(binary.LittleEndian.Uint64(r.body[8:])) != minute ||
		len(r.body) != indexHeaderBytes+indexEntryBytes*int(binary.LittleEndian.Uint32(r.body[4:])):
		return minuteIndex{}, fmt.Errorf("%w: no index of the minute %d", errDamaged, minute)
	}
	return minuteIndex{r.body[indexHeaderBytes:]}, nil
}

func (m minuteIndex) len() int { return len(m.entries) / indexEntryBytes }

func (m minuteIndex) stream(i int) uint32 {
	return binary.LittleEndian.Uint32(m.entries[i*indexEntryBytes:])
}

func (m minuteIndex) at(i int) streamEntry {
	b := m.entries[i*indexEntryBytes:]
	small := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	large := func(i int) uint64 { return binary.LittleEndian.Uint64(b[16+8*i:]) }
	return streamEntry{small(0), entry{number: large(0), time: int64(large(1)), offset: int64(large(2)),
		length: small(1), behind: small(2)}}
}

// of appends the entries of a stream, in order of their numbers.
func (m minuteIndex) of(stream uint32, to []entry) []entry {
	first := sort.Search(m.len(), func(i int) bool { return m.stream(i) >= stream })
	for i := first; i < m.len() && m.stream(i) == stream; i++ {
		to = append(to, m.at(i).entry)
	}
	return to
}
