package credit_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"outsight/internal/region"
	"outsight/internal/region/credit"
	"outsight/internal/region/tcp"
)

var key = region.Key{ID: 7, Secret: []byte("0123456789abcdef")}

// watched sees how much is on the way, by all that share the counters.
type watched struct {
	credit.ReadCloser
	onTheWay, most, longest *atomic.Int64
	reads                   *atomic.Int64
}

func raise(to *atomic.Int64, v int64) {
	for was := to.Load(); v > was && !to.CompareAndSwap(was, v); was = to.Load() {
	}
}

func (w watched) ReadAll(ctx context.Context, reads []region.Read) error {
	var bytes int64
	for _, r := range reads {
		bytes += int64(len(r.Into))
	}
	raise(w.most, w.onTheWay.Add(bytes))
	raise(w.longest, bytes)
	w.reads.Add(1)
	defer w.onTheWay.Add(-bytes)
	return w.ReadCloser.ReadAll(ctx, reads)
}

// TestReadsOfManyHosts reads regions of several real servers at once: what is read is right, and never more than the credit
// is on the way.
func TestReadsOfManyHosts(t *testing.T) {
	const words = 40000
	words64 := make([]uint64, words)
	for i := range words64 {
		words64[i] = uint64(i)
	}
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words64[0])), 8*words)
	for _, test := range []struct{ hosts, total, share int }{
		{1, 256 << 10, 256 << 10}, {3, 100 << 10, 100 << 10 / 3 &^ 7}, {8, 8 << 10, credit.Fragment},
	} {
		window, err := credit.New(test.total)
		if err != nil {
			t.Fatal(err)
		}
		var onTheWay, most, longest, reads atomic.Int64
		var readers []*credit.Reader
		for range test.hosts {
			c, err := tcp.Dial(t.Context(), serve(t, memory), key)
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, window.Within(watched{c, &onTheWay, &most, &longest, &reads}))
		}
		var all sync.WaitGroup
		for _, r := range readers {
			all.Go(func() {
				whole, word := make([]byte, len(memory)), make([]byte, 8)
				err := r.ReadAll(t.Context(), []region.Read{{Region: 3, Into: whole}, {Region: 3, Offset: 8 * 77, Into: word}})
				if err != nil {
					t.Error(err)
				}
				if !bytes.Equal(whole, memory) || binary.LittleEndian.Uint64(word) != 77 {
					t.Error("what was read is not what is there")
				}
			})
		}
		all.Wait()
		if most.Load() > int64(test.total) || longest.Load() != int64(test.share) || onTheWay.Load() != 0 {
			t.Errorf("%d hosts, %d bytes of credit: %d on the way at most, %d of one, want %d of one", test.hosts, test.total,
				most.Load(), longest.Load(), test.share)
		}
		parts := (len(memory) + 8 + test.share - 1) / test.share * test.hosts
		if reads.Load() != int64(parts) {
			t.Errorf("%d hosts: %d reads, want %d", test.hosts, reads.Load(), parts)
		}
		for _, r := range readers {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func serve(t *testing.T, memory []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := tcp.NewServer(l, map[uint32][]byte{3: memory}, []region.Key{key}, tcp.Options{})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// silent is a host that does not answer before its context ends.
type silent struct{}

func (silent) Read(ctx context.Context, _ uint32, _ uint64, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}
func (s silent) ReadAll(ctx context.Context, _ []region.Read) error { return s.Read(ctx, 0, 0, nil) }
func (silent) Close() error                                         { return nil }

// TestSilentHostKeepsItsShare: a host that does not answer keeps its own share, and gives it back at its deadline; who waits
// for credit gives up at the deadline, too.
func TestSilentHostKeepsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		window, err := credit.New(8 << 10)
		if err != nil {
			t.Fatal(err)
		}
		reads := func(ctx context.Context, r *credit.Reader) error { return r.Read(ctx, 1, 0, make([]byte, 4<<10)) }
		read := func(r *credit.Reader, within time.Duration) chan error {
			done := make(chan error, 1)
			go func() {
				ctx, stop := context.WithTimeout(t.Context(), within)
				defer stop()
				done <- reads(ctx, r)
			}()
			synctest.Wait()
			return done
		}
		a, b, c := window.Within(silent{}), window.Within(silent{}), window.Within(ready{})
		first := read(a, time.Second)
		if err := reads(t.Context(), c); err != nil {
			t.Fatalf("with one silent host: %v", err)
		}
		second := read(b, 3*time.Second)
		impatient, patient := read(c, time.Millisecond), read(window.Within(ready{}), 10*time.Second)
		if err := <-impatient; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for credit: %v", err)
		}
		start := time.Now()
		if err := <-patient; err != nil {
			t.Errorf("after a silent host's deadline: %v", err)
		}
		if waited := time.Since(start); waited != time.Second-time.Millisecond { // synctest's clock
			t.Errorf("waited for %v, want until the first deadline", waited)
		}
		for _, done := range []chan error{first, second} {
			if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a silent host: %v", err)
			}
		}
	})
}

// ready is a host that answers at once.
type ready struct{}

func (ready) Read(context.Context, uint32, uint64, []byte) error { return nil }
func (ready) ReadAll(context.Context, []region.Read) error       { return nil }
func (ready) Close() error                                       { return nil }

func TestCreditOfNoFragment(t *testing.T) {
	if _, err := credit.New(credit.Fragment - 1); err == nil {
		t.Error("no error")
	}
}
