package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outsight/internal/ingest"
	"outsight/internal/queue"
	"outsight/internal/store"
)

// openQueue opens the queue in dir, of few bytes, so that it has several blocks.
func openQueue(t testing.TB, dir string, log *slog.Logger) (*ingest.Embedded, *queue.Queue, func()) {
	t.Helper()
	embedded, err := ingest.Embed(dir, 128<<20, log)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := embedded.Connect()
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.Open(t.Context(), conn, queue.Options{MaxBytes: 32 << 20, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	return embedded, q, func() {
		conn.Close()
		if err := embedded.Close(); err != nil {
			t.Error(err)
		}
	}
}

// bodyOf is what message n has: any message can be checked by itself.
func bodyOf(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, 40+r.IntN(90_000))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func fill(t testing.TB, q *queue.Queue, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if _, err := q.Publish(t.Context(),
			queue.Message{ID: strconv.Itoa(n), Header: map[string]string{"Number": strconv.Itoa(n)},
				Data: bodyOf(n)}); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads until nothing is left but what cannot be read. It fails where a message is not what was published.
func readAll(t testing.TB, q *queue.Queue) (numbers []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if s, err := q.Stats(ctx); err == nil && s.Messages <= s.Lost {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	err := q.Consume(ctx, func(_ context.Context, group []*queue.Delivery) error {
		for _, d := range group {
			n, err := strconv.Atoi(d.Header("Number"))
			if err != nil || !bytes.Equal(d.Data, bodyOf(n)) {
				t.Errorf("message %d is not what was published: header %q, %d bytes", d.Sequence, d.Header("Number"), len(d.Data))
			}
			numbers = append(numbers, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Err() == context.DeadlineExceeded {
		s, err := q.Stats(t.Context())
		t.Fatalf("the queue does not become empty: %+v, %v", s, err)
	}
	return numbers
}

func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// flip changes bits of one byte of one of the files, and tells where.
func flip(t testing.TB, r *rand.Rand, files []string) string {
	t.Helper()
	path := files[r.IntN(len(files))]
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := r.IntN(len(content))
	if r.IntN(4) == 0 { // structure is rare: lengths, times, subjects and hashes are near the begin of a record
		at = min(len(content)-1, max(0, bytes.Index(content[at:], []byte("outsight"))+at-22+r.IntN(40)))
	}
	with := byte(1 + r.IntN(255))
	content[at] ^= with
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s[%d]^=%#x", filepath.Base(path), at, with)
}

func blocks(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "OUTSIGHT", "msgs", "*.blk"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d blocks, %v", len(files), err)
	}
	return files
}

// positions is how many positions of a damaged byte are tried.
const positions = 15

// Wherever a byte of a block is damaged: what can be read is read, unchanged, and what is lost is counted.
func TestDamagedBlockOfTheQueue(t *testing.T) {
	const published, consumed = 220, 20
	origin := t.TempDir()
	_, q, stop := openQueue(t, origin, slog.New(slog.DiscardHandler))
	fill(t, q, 0, consumed)
	done := len(readAll(t, q))
	fill(t, q, done, published)
	stop()
	worst := 0
	for n := range positions {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(n), 2))
			dir := filepath.Join(t.TempDir(), "queue")
			copyTree(t, origin, dir)
			var where []string
			for range 1 + n%3 {
				where = append(where, flip(t, r, blocks(t, dir)))
			}
			embedded, q, stop := openQueue(t, dir, slog.New(slog.DiscardHandler))
			defer stop()
			read := readAll(t, q)
			slices.Sort(read)
			distinct := slices.Compact(slices.Clone(read))
			fresh := 0
			for _, n := range distinct {
				if n >= done {
					fresh++
				}
			}
			stats, err := q.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lost := int(embedded.Repaired().Lost + stats.Lost)
			if fresh+lost != published-done {
				t.Errorf("%q: %d read and %d reported lost of %d", where, fresh, lost, published-done)
			}
			worst = max(worst, lost)
			if embedded.Repaired().Blocks == 0 {
				t.Errorf("%q: nothing was found", where)
			}
			if kept, _ := os.ReadDir(filepath.Join(dir, "damaged")); len(kept) == 0 {
				t.Errorf("%q: no copy was kept", where)
			}
			// The queue goes on: a number is not given twice, and what comes is handed out.
			fill(t, q, published, published+3)
			if more := readAll(t, q); len(more) != 3 {
				t.Errorf("%q: %d of 3 new messages", where, len(more))
			}
		})
	}
	if worst > 3 {
		t.Errorf("up to %d messages were lost by damage of up to three bytes", worst)
	}
}

// A message that is damaged while the server runs does not hold up the others.
func TestDamageWhileTheQueueIsOpen(t *testing.T) {
	const published = 220
	dir := t.TempDir()
	_, q, stop := openQueue(t, dir, slog.New(slog.DiscardHandler))
	fill(t, q, 0, published)
	stop()
	for n := range 2 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "queue")
			copyTree(t, dir, copied)
			_, q, stop := openQueue(t, copied, slog.New(slog.DiscardHandler))
			defer stop()
			files := blocks(t, copied)
			content, err := os.ReadFile(files[n%len(files)])
			if err != nil {
				t.Fatal(err)
			}
			content[len(content)/2] ^= 0x10
			if err := os.WriteFile(files[n%len(files)], content, 0o600); err != nil {
				t.Fatal(err)
			}
			read := readAll(t, q)
			stats, err := q.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(read)+int(stats.Lost) != published || stats.Lost == 0 {
				t.Errorf("%d read and %d reported lost of %d", len(read), stats.Lost, published)
			}
		})
	}
}

// The files that describe a stream are made again, and its messages stay.
func TestDamagedDescriptionOfTheQueue(t *testing.T) {
	const published = 50
	origin := t.TempDir()
	_, q, stop := openQueue(t, origin, slog.New(slog.DiscardHandler))
	fill(t, q, 0, published)
	stop()
	for _, name := range []string{"meta.inf", "meta.sum", "msgs/index.db", "obs/store/meta.inf", "obs/store/meta.sum",
		"obs/store/o.dat"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "queue")
			copyTree(t, origin, dir)
			files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "OUTSIGHT", name))
			if err != nil || len(files) != 1 {
				t.Skipf("there is no such file: %v", err)
			}
			flip(t, rand.New(rand.NewPCG(1, 1)), files)
			_, q, stop := openQueue(t, dir, slog.New(slog.DiscardHandler))
			defer stop()
			if read := readAll(t, q); len(read) != published {
				t.Errorf("%d of %d messages", len(read), published)
			}
		})
	}
}

// While the disk is full, senders are asked to retry later; nothing is accepted that would fill it further.
func TestNoRoomOnTheDisk(t *testing.T) {
	var full atomic.Bool
	s := start(t, t.TempDir(), setup{Options: ingest.Options{Room: func() error {
		if full.Load() {
			return store.ErrNoSpace
		}
		return nil
	}}})
	now := time.Now()
	full.Store(true)
	answer, text := s.post(t, gaugeRequest(t, "g", now, 1), nil)
	if answer.StatusCode != 429 || answer.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(text), store.ErrNoSpace.Error()) {
		t.Errorf("%s, Retry-After %q: %s", answer.Status, answer.Header.Get("Retry-After"), text)
	}
	full.Store(false)
	if answer, text := s.post(t, gaugeRequest(t, "g", now, 1), nil); answer.StatusCode != 200 {
		t.Errorf("with room: %s: %s", answer.Status, text)
	}
	s.drained(t)
	if got := s.value(t, "g", now); got != "1" {
		t.Errorf("stored %q", got)
	}
}
