package container

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestUnchangedFilesBackOff: an unchanged file is read less often, a change is seen within backoffEvery readings, and
// what changes is read each time. Each file has a backoff of its own.
func TestUnchangedFilesBackOff(t *testing.T) {
	for _, file := range []struct {
		name, text string
		number     func(*Usage) uint64
	}{
		{"io.stat", "8:0 rbytes=4096 wbytes=0 rios=%d wios=0 dbytes=0 dios=0\n",
			func(u *Usage) uint64 { return u.Disk.Reads }},
		{"memory.events", "low 0\noom 0\noom_kill %d\n", func(u *Usage) uint64 { return u.Memory.OOMKills }},
		{"memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n",
			func(u *Usage) uint64 { return u.Pressure.Memory.WaitingNS / 1000 }},
	} {
		t.Run(file.name, func(t *testing.T) { backsOffUnchanged(t, file.name, file.text, file.number) })
	}
}

func backsOffUnchanged(t *testing.T, name, text string, number func(*Usage) uint64) {
	f, c, dir := v2Group(t)
	write := func(n uint64) {
		t.Helper()
		writeFile(t, filepath.Join(dir, name), fmt.Sprintf(text, n))
	}
	waited := uint64(0)
	read := func() uint64 {
		t.Helper()
		waited++
		writeFile(t, filepath.Join(dir, "cpu.pressure"),
			fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n", waited))
		u := readOne(t, f, c)
		if u.Err != nil || u.Disk == nil || u.Memory == nil || u.Pressure == nil {
			t.Fatalf("%+v", u)
		}
		if u.Pressure.CPU.WaitingNS != waited*1000 {
			t.Fatalf("pressure on the CPU changes each time: %d ns, want %d", u.Pressure.CPU.WaitingNS, waited*1000)
		}
		return number(u)
	}
	write(10)
	for range backoffAfter + 2 { // the first said something new, and the next is no turn of it
		if n := read(); n != 10 {
			t.Fatalf("%d, want 10", n)
		}
	}
	backedOff := false
	for _, want := range []uint64{20, 30, 40} {
		write(want)
		n, readings := read(), 1
		for ; n != want && readings < backoffEvery; readings++ {
			n = read()
		}
		if n != want {
			t.Fatalf("after %d readings %d, want %d", readings, n, want)
		}
		backedOff = backedOff || readings > 1
		if want > 20 && readings != 1 {
			t.Errorf("%d was seen after %d readings, though the reading before them had told something new", want, readings)
		}
		for range backoffAfter - 2 {
			if n := read(); n != want {
				t.Fatalf("%d, want %d", n, want)
			}
		}
	}
	if !backedOff {
		t.Errorf("%s was read each time, though it had said the same %d times", name, backoffAfter)
	}
}

// TestBackoffIsSpread: of containers that begin at different times, one in backoffEvery is read in each turn.
func TestBackoffIsSpread(t *testing.T) {
	for i := range backoffEvery {
		if turn := uint64(100 + i); backoff(backoffAfter).skips(turn, turn) || !backoff(backoffAfter).skips(turn, turn-1) ||
			backoff(backoffAfter-1).skips(turn, turn-1) {
			t.Errorf("turn %d: wrong backoff", turn)
		}
	}
}
