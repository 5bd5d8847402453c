package container

import (
	"path/filepath"
	"testing"
)

// TestUnchangedFilesRest: what says the same again and again is read less often, a change is seen within
// restEvery readings, and what changes is read each time.
func TestUnchangedFilesRest(t *testing.T) {
	f, c, dir := v2Group(t)
	write := func(reads string) {
		t.Helper()
		writeFile(t, filepath.Join(dir, "io.stat"), "8:0 rbytes=4096 wbytes=0 rios="+reads+" wios=0 dbytes=0 dios=0\n")
	}
	reads := func() uint64 {
		t.Helper()
		u := readOne(t, f, c)
		if u.Err != nil || u.Disk == nil {
			t.Fatalf("%+v", u)
		}
		return u.Disk.Reads
	}
	write("10")
	for range restAfter {
		if n := reads(); n != 10 {
			t.Fatalf("%d reads, want 10", n)
		}
	}
	for _, next := range []struct {
		text string
		want uint64
	}{{"20", 20}, {"30", 30}, {"40", 40}} {
		write(next.text)
		n, readings := reads(), 1
		for ; n != next.want && readings < restEvery; readings++ {
			n = reads()
		}
		if n != next.want {
			t.Fatalf("after %d readings %d reads, want %d", readings, n, next.want)
		}
		if next.want > 20 && readings != 1 {
			t.Errorf("%d reads were seen after %d readings, though the reading before them had told something new", next.want, readings)
		}
		for range restAfter - 2 {
			if n := reads(); n != next.want {
				t.Fatalf("%d reads, want %d", n, next.want)
			}
		}
	}
	// Of containers that begin at different times, one in restEvery is read in each turn.
	for i := range restEvery {
		if turn := uint64(100 + i); rest(restAfter).now(turn, turn) || !rest(restAfter).now(turn, turn-1) || rest(restAfter-1).now(turn, turn-1) {
			t.Errorf("turn %d: wrong rest", turn)
		}
	}
}
