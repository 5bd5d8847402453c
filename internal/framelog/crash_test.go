package framelog

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// appenderDir is the environment's name of the directory to which appendUntilKilled appends.
const appenderDir = "FRAMELOG_TEST_APPEND"

// smallSegments close and thin often, so that kills meet that too.
func smallSegments() Options {
	return Options{SegmentBytes: 20_000, TidyEvery: 3 * time.Millisecond, Fine: time.Minute, Middle: 2 * time.Minute,
		MaxAge: 1000 * time.Hour}
}

// appendUntilKilled appends frames and says of each batch that it is stored. It goes on where the log ends.
func appendUntilKilled(dir string) error {
	f, err := Open(dir, smallSegments())
	if err != nil {
		return err
	}
	epoch := uint64(time.Now().UnixNano())
	all := opaque("a", epoch, beginOf(epoch), time.Second/4, 4*3600)
	fmt.Println("epoch", epoch)
	for at := 0; at+7 < len(all); at += 7 {
		// The one before is sent again, as a sender does who was not answered.
		if err := f.Append(context.Background(), all[max(0, at-7):at+7]); err != nil {
			return err
		}
		fmt.Println("stored", all[at+6].Number)
	}
	return fmt.Errorf("it was not killed")
}

// beginOf is the time of the first frame of an epoch: a full minute, an hour ago.
func beginOf(epoch uint64) time.Time {
	return time.Unix(0, int64(epoch)).Add(-time.Hour).Truncate(time.Minute)
}

// kills is how often TestKilled kills; the benchmark of a server asks for more.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("OUTSIGHT_KILLS")); err == nil {
		return n
	}
	return 20
}

// TestKilled kills a program that appends, thins and closes segments, at random instants. Nothing that it said was
// stored may be missing, but for what thinning leaves out, and nothing may be there twice.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[uint64]uint64{} // the last number of an epoch
	for n := range kills() {
		command := exec.Command(os.Args[0], "-test.run=^$")
		command.Env = append(os.Environ(), appenderDir+"="+dir)
		var complaint bytes.Buffer
		command.Stderr = &complaint
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		epoch := uint64(0)
		for left := 5 + rand.IntN(400); left > 0 && lines.Scan(); left-- {
			readAcknowledged(lines.Text(), &epoch, acknowledged)
		}
		if err := command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it had said before
			readAcknowledged(lines.Text(), &epoch, acknowledged)
		}
		command.Wait()
		if complaint.Len() > 0 {
			t.Fatalf("life %d: %s", n, complaint.String())
		}
		checkAcknowledged(t, dir, acknowledged)
	}
	t.Logf("%d kills, %d epochs, nothing acknowledged lost, nothing twice", kills(), len(acknowledged))
}

func readAcknowledged(line string, epoch *uint64, last map[uint64]uint64) {
	what, text, _ := strings.Cut(line, " ")
	number, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
	case what == "epoch":
		*epoch = number
	case what == "stored":
		last[*epoch] = number
	}
}

// checkAcknowledged opens the log and looks for each key frame and each last frame, and for all frames that are not old
// enough to be thinned.
func checkAcknowledged(t *testing.T, dir string, last map[uint64]uint64) {
	t.Helper()
	o := smallSegments()
	o.TidyEvery = -1
	f, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, twice := stored(t, f)
	if twice > 0 {
		t.Fatalf("%d frames are there twice", twice)
	}
	for epoch, number := range last {
		newest := f.Stats().Newest
		for i := uint64(1); i <= number; i++ {
			at := beginOf(epoch).Add(time.Duration(i-1) * time.Second / 4)
			mustBe := (i-1)%240 == 0 || newest.Sub(at) < o.Fine
			if mustBe && all[fmt.Sprintf("a/%d/%d", epoch, i)] == nil {
				t.Fatalf("frame %d of %d of epoch %d is lost: %+v", i, number, epoch, f.Stats())
			}
		}
	}
	if s := f.Stats(); s.Damaged > 0 {
		t.Fatalf("damage: %+v", s)
	}
}

// openSegmentFile makes a segment that was not closed, as one is after a kill, and answers where its records end.
func openSegmentFile(t *testing.T, all []Encoded, batch int) (content []byte, ends []int64) {
	t.Helper()
	dir := t.TempDir()
	f := open(t, dir, (&clock{start}).options())
	for i := 0; i < len(all); i += batch {
		mustAppend(t, f, all[i:min(i+batch, len(all))]...)
	}
	content, err := os.ReadFile(pathOf(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	at := int64(fileHeaderBytes)
	for i := range all {
		r := recordOf(&all[i])
		at += r.size()
		ends = append(ends, at)
	}
	if at != int64(len(content)) {
		t.Fatalf("%d bytes, want %d", len(content), at)
	}
	return content, ends
}

// TestTornSegment cuts a segment off at each of 1,000 random bytes, closed ones too.
func TestTornSegment(t *testing.T) {
	all := opaque("a", 1, start, time.Second, 300)
	content, ends := openSegmentFile(t, all, 10)
	dir := t.TempDir()
	if err := os.WriteFile(pathOf(dir, 1), content, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, (&clock{start}).options()).Close()
	closed, err := os.ReadFile(pathOf(dir, 1))
	if err != nil || len(closed) <= len(content) {
		t.Fatalf("it was not closed: %d bytes, %v", len(closed), err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 1000 {
		torn := content
		if n%2 == 1 {
			torn = closed
		}
		torn = torn[:random.IntN(len(torn))]
		whole := 0
		for whole < len(ends) && ends[whole] <= int64(len(torn)) {
			whole++
		}
		var log bytes.Buffer
		f, done := openWith(t, torn, &log)
		checkStored(t, f, all[:whole])
		inside := int64(len(torn)) > fileHeaderBytes && int64(len(torn)) < ends[len(ends)-1] &&
			(whole == 0 || ends[whole-1] != int64(len(torn)))
		// Of the first bytes of an index nobody can tell what they are.
		unknown := int64(len(torn)) <= ends[len(ends)-1]+recordHeaderBytes && whole == len(ends)
		if said := strings.Contains(log.String(), "the end of a file of frames cannot be read"); said != inside && !unknown {
			t.Fatalf("cut at %d of %d: it said %q", len(torn), len(content), log.String())
		}
		if inside && !strings.Contains(log.String(), fmt.Sprintf("kept_frames=%d", whole)) {
			t.Fatalf("it said %q, want %d kept", log.String(), whole)
		}
		if n%20 == 0 { // it takes what was lost again
			mustAppend(t, f, all...)
			checkStored(t, f, all)
		}
		done()
		if t.Failed() {
			t.Fatalf("cut at %d of %d", len(torn), len(content))
		}
	}
}

// openWith opens a log with one segment of this content.
func openWith(t *testing.T, content []byte, log *bytes.Buffer) (f *Files, done func()) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pathOf(dir, 1), content, 0o600); err != nil {
		t.Fatal(err)
	}
	o := (&clock{start.Add(time.Hour)}).options()
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	f, err = Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return f, func() {
		f.Close()
		os.RemoveAll(dir)
	}
}

// TestDamagedRecord changes a byte: one frame is lost and those that need it, and it is told and counted.
func TestDamagedRecord(t *testing.T) {
	all := opaque("a", 1, start, time.Second, 300)
	content, ends := openSegmentFile(t, all, 10)
	dir := t.TempDir()
	if err := os.WriteFile(pathOf(dir, 1), content, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, (&clock{start}).options()).Close()
	closed, err := os.ReadFile(pathOf(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for n := range 300 {
		broken := bytes.Clone(content)
		if n%2 == 1 {
			broken = bytes.Clone(closed)
		}
		at := fileHeaderBytes + random.IntN(int(ends[len(ends)-2])-fileHeaderBytes)
		broken[at] ^= byte(1 + random.IntN(255))
		lost := 0
		for ends[lost] <= int64(at) {
			lost++
		}
		var want []Encoded
		for i := range all {
			if i != lost && all[i].Key != all[lost].Number {
				want = append(want, all[i])
			}
		}
		var log bytes.Buffer
		f, done := openWith(t, broken, &log)
		// A closed segment is read when a frame is wanted: that finds the damage. Then its dependents are left out.
		stored(t, f)
		checkStored(t, f, want)
		if s := f.Stats(); s.Damaged != 1 || log.Len() == 0 {
			t.Fatalf("byte %d: %+v, it said %q", at, s, log.String())
		}
		if n%2 == 0 {
			if names := f.copies.List(); len(names) != 1 {
				t.Fatalf("copies: %v", names)
			} else if kept, err := os.ReadFile(filepath.Join(f.copies.Path, names[0])); err != nil ||
				!bytes.Equal(kept, broken) {
				t.Fatalf("the copy has %d bytes, %v", len(kept), err)
			}
		}
		done()
		if t.Failed() {
			t.Fatalf("byte %d", at)
		}
	}
}

// TestDamagedIndex: the frames of a closed segment are found without its index.
func TestDamagedIndex(t *testing.T) {
	all := opaque("a", 1, start, time.Second, 300)
	content, ends := openSegmentFile(t, all, 10)
	dir := t.TempDir()
	if err := os.WriteFile(pathOf(dir, 1), content, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, (&clock{start}).options()).Close()
	closed, err := os.ReadFile(pathOf(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		broken := bytes.Clone(closed)
		at := int(ends[len(ends)-1]) + random.IntN(len(closed)-int(ends[len(ends)-1]))
		broken[at] ^= byte(1 + random.IntN(255))
		var log bytes.Buffer
		f, done := openWith(t, broken, &log)
		stored(t, f)
		if err := f.Tidy(context.Background()); err != nil {
			t.Fatal(err)
		}
		checkStored(t, f, all)
		done()
		if t.Failed() {
			t.Fatalf("byte %d: %s", at, log.String())
		}
	}
}

// TestAnotherVersion says what is the matter instead of taking a newer file for a damaged one.
func TestAnotherVersion(t *testing.T) {
	content, _ := openSegmentFile(t, opaque("a", 1, start, time.Second, 10), 10)
	content[len(fileMagic)]++
	dir := t.TempDir()
	if err := os.WriteFile(pathOf(dir, 1), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "version 2 of frame files") {
		t.Errorf("error: %v", err)
	}
}
