package export

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func openSpool(t testing.TB, dir string, maxBytes int64) *Spool {
	t.Helper()
	s, err := OpenSpool(dir, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func batch(i, size int) Batch {
	return Batch{Name: fmt.Sprintf("life/%012d", i), Samples: uint64(i), Data: bytes.Repeat([]byte{byte(i)}, size)}
}

func put(t testing.TB, s *Spool, from, to, size int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := s.Put(batch(i, size)); err != nil {
			t.Fatal(err)
		}
	}
}

// take takes one batch, which must be that one, and lets go of it.
func take(t testing.TB, s *Spool, i, size int) {
	t.Helper()
	b, place, err := s.Next()
	if want := batch(i, size); err != nil || b.Name != want.Name || b.Samples != want.Samples ||
		!bytes.Equal(b.Data, want.Data) {
		t.Fatalf("got %q with %d samples and %d bytes, %v; want number %d", b.Name, b.Samples, len(b.Data), err, i)
	}
	if err := s.Sent(place); err != nil {
		t.Fatal(err)
	}
}

func empty(t testing.TB, s *Spool) {
	t.Helper()
	if b, _, err := s.Next(); !errors.Is(err, errNoBatch) {
		t.Errorf("got %q, %v", b.Name, err)
	}
	if st := s.Stats(); st.Batches != 0 || st.Bytes != 0 {
		t.Errorf("empty, and %+v", st)
	}
}

func TestSpoolInOrder(t *testing.T) {
	const size = 100_000
	dir := t.TempDir()
	s := openSpool(t, dir, 64<<20)
	empty(t, s)
	put(t, s, 0, 50, size)
	if files, _ := filepath.Glob(dir + "/*.spool"); len(files) != 5 {
		t.Errorf("%d files, want 5", len(files))
	}
	for i := range 30 {
		take(t, s, i, size)
	}
	put(t, s, 50, 60, size)
	for i := 30; i < 60; i++ {
		take(t, s, i, size)
	}
	empty(t, s)
	if files, _ := filepath.Glob(dir + "/*.spool"); len(files) != 0 {
		t.Errorf("%v are left", files)
	}
}

// A batch that was not let go of comes again, also from the next life.
func TestSpoolAfterAKill(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 64<<20)
	put(t, s, 0, 5, 10)
	take(t, s, 0, 10)
	for range 2 {
		if b, _, err := s.Next(); err != nil || b.Name != batch(1, 0).Name {
			t.Fatal(b.Name, err)
		}
	}
	if _, err := OpenSpool(dir, 64<<20); !errors.Is(err, ErrInUse) {
		t.Errorf("a second agent: %v", err)
	}
	s.Close() // as a kill: nothing is written at the end
	s = openSpool(t, dir, 64<<20)
	if st := s.Stats(); st.Batches != 5 || st.Damaged != 0 {
		t.Errorf("got %+v", st)
	}
	put(t, s, 5, 6, 10)
	for i := range 6 {
		take(t, s, i, 10)
	}
	empty(t, s)
}

// At whatever byte the last record was cut off, those before it are there, and new ones come after them.
func TestSpoolCutOff(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 64<<20)
	put(t, s, 0, 3, 20)
	s.Close()
	files, _ := filepath.Glob(dir + "/*.spool")
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	record := len(whole) / 3
	for cut := 2 * record; cut < len(whole); cut++ {
		damaged := bytes.Clone(whole)
		if cut%2 == 0 {
			damaged = damaged[:cut]
		} else {
			damaged[cut] ^= 0x40
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(files[0])), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSpool(dir, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if st := s.Stats(); st.Batches != 2 || (st.Damaged != 1 && cut > 2*record) {
			t.Fatalf("cut at %d: %+v", cut, st)
		}
		put(t, s, 7, 8, 20)
		take(t, s, 0, 20)
		take(t, s, 1, 20)
		take(t, s, 7, 20)
		empty(t, s)
		s.Close()
	}
}

// A batch that is damaged costs itself alone, wherever it is.
func TestSpoolDamagedBatch(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, 64<<20)
	put(t, s, 0, 6, 20)
	s.Close()
	files, _ := filepath.Glob(dir + "/*.spool")
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	record := len(whole) / 6
	for bad := range 5 {
		damaged := bytes.Clone(whole)
		damaged[(bad+1)*record-3] ^= 0x40
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(files[0])), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s := openSpool(t, dir, 64<<20)
		if st := s.Stats(); st.Batches != 5 || st.Damaged == 0 {
			t.Fatalf("batch %d is damaged: %+v", bad, st)
		}
		put(t, s, 7, 8, 20)
		for _, i := range []int{0, 1, 2, 3, 4, 5, 7} {
			if i != bad {
				take(t, s, i, 20)
			}
		}
		empty(t, s)
	}
}

// A full spool gives up its oldest batches, and counts each.
func TestSpoolFull(t *testing.T) {
	const size = 50_000
	s := openSpool(t, t.TempDir(), 4<<20)
	put(t, s, 0, 200, size)
	st := s.Stats()
	if st.Bytes > 4<<20 || st.Batches+st.DroppedBatches != 200 || st.DroppedBatches < 110 {
		t.Fatalf("got %+v", st)
	}
	samples := uint64(0)
	for i := range st.DroppedBatches {
		samples += i
	}
	if st.DroppedSamples != samples {
		t.Errorf("%d samples dropped, want %d", st.DroppedSamples, samples)
	}
	// One that had to go while it was being sent.
	_, place, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, 200, 230, size)
	if err := s.Sent(place); err != nil {
		t.Fatal(err)
	}
	for i := int(s.Stats().DroppedBatches); i < 230; i++ {
		take(t, s, i, size)
	}
	empty(t, s)
	if err := s.Put(batch(1, 3<<20)); err == nil {
		t.Error("a batch larger than half of the spool was taken")
	}
}

// FuzzSpool opens a file of anything: it must end with the spool empty and usable.
func FuzzSpool(f *testing.F) {
	dir := f.TempDir()
	s := openSpool(f, dir, 64<<20)
	put(f, s, 0, 3, 20)
	s.Close()
	files, _ := filepath.Glob(dir + "/*.spool")
	whole, err := os.ReadFile(files[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:40])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/000000000001.spool", b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := openSpool(t, dir, 64<<20)
		n := s.Stats().Batches
		put(t, s, 7, 8, 20)
		for range n {
			_, place, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Sent(place); err != nil {
				t.Fatal(err)
			}
		}
		take(t, s, 7, 20)
		empty(t, s)
	})
}
