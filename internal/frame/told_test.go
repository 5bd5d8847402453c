package frame

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// TestRunsOfBuckets reads runs of any length and counts of any size, and those that pass over all buckets, as the page
// about the format says: number by number.
func TestRunsOfBuckets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	short := 0
	for range 2000 {
		var runs []byte
		var want [allBuckets]uint64
		n, next := 0, 0
		for next < allBuckets && n < 9 {
			skip := random.IntN(min(300, allBuckets-next) + 1)
			if random.IntN(20) == 0 {
				skip = allBuckets - next
			}
			next += skip
			count := min(random.IntN(12), allBuckets-next)
			begin := len(runs)
			runs = binary.AppendUvarint(binary.AppendUvarint(runs, uint64(skip)), uint64(count))
			for range count {
				v := random.Uint64N(1 << (random.IntN(8) + 1))
				if random.IntN(9) == 0 {
					v = random.Uint64() >> random.IntN(60)
				}
				want[next] += v
				next++
				runs = binary.AppendUvarint(runs, v)
			}
			if _, _, _, ok := shortRun(append(runs, make([]byte, 8)...), begin); ok {
				short++
			}
			n++
		}
		section := []byte{hasValues, 0, 0, 1} // of one row
		section = binary.AppendUvarint(section, uint64(n)<<2)
		section = append(append(section, 7), runs...)
		told := toldHistograms{bytes: section, at: make([]uint32, 1)}
		if !told.index() {
			t.Fatalf("% x is refused", section)
		}
		var got tally
		for _, times := range []uint64{1, 1, ^uint64(0)} { // once in all
			got.read(section, int(told.at[0]), times)
		}
		if got.sumNS != 7 || [allBuckets]uint64(got.buckets[:allBuckets]) != want {
			t.Fatalf("% x is\n%d, want\n%d", section, got.buckets, want)
		}
		for i, n := range want {
			if n != 0 && (i < got.first || i >= got.end) {
				t.Fatalf("% x has something in bucket %d, not within %d to %d", section, i, got.first, got.end)
			}
		}
		runs = binary.AppendUvarint(binary.AppendUvarint(runs, uint64(allBuckets-next)), 1)
		section = append(append(binary.AppendUvarint([]byte{hasValues, 0, 0, 1}, uint64(n+1)<<2), 7), runs...)
		for _, behind := range [][]byte{{3}, {3, 0, 0, 0, 0, 0, 0, 0, 0}} {
			told := toldHistograms{bytes: append(section, behind...), at: make([]uint32, 1)}
			if told.index() {
				t.Fatalf("% x is read, which goes past the last bucket", told.bytes)
			}
		}
	}
	if short == 0 {
		t.Error("no run is short")
	}
}
