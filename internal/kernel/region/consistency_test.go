package region

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outsight/internal/kernel/host"
	"outsight/internal/region/readwire"
)

// writing calls write with 1, 2, ... as fast as it goes until stop.
func writing(t *testing.T, write func(n uint64)) (stop func() (rounds uint64)) {
	var end atomic.Bool
	var rounds uint64
	var writer sync.WaitGroup
	writer.Go(func() {
		for !end.Load() {
			rounds++
			write(rounds)
		}
	})
	stop = sync.OnceValue(func() uint64 {
		end.Store(true)
		writer.Wait()
		return rounds
	})
	t.Cleanup(func() { stop() })
	return stop
}

const repeated = 0x0101010101010101

// While a writer changes all bytes of each word at full speed, a word that is read is one that was written.
func TestWordsAreNotTorn(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) { testWords(t, hook, 1, readwire.Options{}) })
	}
}

// testWords reads a region of so many packets.
func testWords(t *testing.T, hook Hook, packets int, o readwire.Options) {
	p := newPair(t)
	key := readwire.NewKey(1)
	r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}, MaxReads: 10_000_000})
	m := newRegion(t, 8, uint32(packets*readwire.MaxBytes/8))
	table, err := host.MapTable[uint64](m)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if err := r.Add(0, m); err != nil {
		t.Fatal(err)
	}
	c := p.dial(hostAddresses[0], key, o)
	stop := writing(t, func(n uint64) {
		for i := range table.Entries {
			host.Store(&table.Entries[i], n&0xff*repeated)
		}
	})
	defer stop()
	data := make([]byte, packets*readwire.MaxBytes)
	words, torn, amid := 0, 0, 0
	for begin := time.Now(); time.Since(begin) < 2*time.Second; {
		if err := c.Read(t.Context(), 0, 0, data); err != nil {
			t.Fatal(err)
		}
		first := binary.LittleEndian.Uint64(data)
		for at := 0; at < len(data); at += 8 {
			words++
			word := binary.LittleEndian.Uint64(data[at:])
			if word%256*repeated != word {
				torn++
			}
			if word != first {
				amid++
				first = word
			}
		}
	}
	if torn > 0 {
		t.Errorf("%d of %d words are torn", torn, words)
	}
	if amid == 0 {
		t.Errorf("no reading of %d words saw a writer at work: nothing is proved", words)
	}
	t.Logf("%d words in %d rounds of the writer, %d times it was seen at work", words, stop(), amid)
}

// record is as those of the agent that have several words of one moment.
type record struct {
	head uint64
	data [14]uint64
	tail uint64
}

// A record whose generations at head and tail are the same is of one moment.
func TestRecordsAreOfOneMoment(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			p := newPair(t)
			key := readwire.NewKey(1)
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}, MaxReads: 10_000_000})
			m := newRegion(t, 128, 8)
			table, err := host.MapTable[record](m)
			if err != nil {
				t.Fatal(err)
			}
			defer table.Close()
			if err := r.Add(0, m); err != nil {
				t.Fatal(err)
			}
			c := p.dial(hostAddresses[0], key, readwire.Options{})
			stop := writing(t, func(n uint64) {
				for i := range table.Entries {
					entry := &table.Entries[i]
					host.Store(&entry.tail, n)
					for j := range entry.data {
						host.Store(&entry.data[j], n)
					}
					host.Store(&entry.head, n)
				}
			})
			defer stop()
			data := make([]byte, 8*128)
			accepted, refused, mixed := 0, 0, 0
			for begin := time.Now(); time.Since(begin) < 2*time.Second; {
				if err := c.Read(t.Context(), 0, 0, data); err != nil {
					t.Fatal(err)
				}
				for at := 0; at < len(data); at += 128 {
					head := binary.LittleEndian.Uint64(data[at:])
					if binary.LittleEndian.Uint64(data[at+120:]) != head {
						refused++
						continue
					}
					accepted++
					for i := 8; i < 120; i += 8 {
						if binary.LittleEndian.Uint64(data[at+i:]) != head {
							mixed++
							break
						}
					}
				}
			}
			if mixed > 0 || accepted == 0 || refused == 0 {
				t.Errorf("%d of %d accepted records are of several moments; %d were refused (none would prove nothing)", mixed,
					accepted, refused)
			}
			t.Logf("%d accepted, %d refused, %d rounds of the writer", accepted, refused, stop())
		})
	}
}

// A region that goes while it is read is there or not: nothing else is ever read.
func TestRegionsComeAndGoWhileTheyAreRead(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			const rounds = 60
			p := newPair(t)
			key := readwire.NewKey(1)
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}, MaxReads: 10_000_000})
			done := make(chan struct{})
			var current atomic.Uint64 // the newest that was added
			var readers sync.WaitGroup
			var found, missed atomic.Uint64
			for range 2 {
				c := p.dial(hostAddresses[0], key, readwire.Options{})
				readers.Go(func() {
					data := make([]byte, readwire.MaxBytes)
					for {
						select {
						case <-done:
							return
						default:
						}
						oldest := current.Load()
						err := c.Read(t.Context(), 1, 0, data)
						newest := current.Load() + 1 // it may be read before it is noted
						var status *readwire.StatusError
						if errors.As(err, &status) && status.Status == readwire.UnknownRegion {
							missed.Add(1)
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						found.Add(1)
						first := binary.LittleEndian.Uint64(data)
						for at := 0; at < len(data); at += 8 {
							if word := binary.LittleEndian.Uint64(data[at:]); word != first || word < oldest || word > newest {
								t.Errorf("read %#x behind %#x, want one from %d to %d", word, first, oldest, newest)
								return
							}
						}
					}
				})
			}
			for n := range uint64(rounds) {
				m := newRegion(t, 8, readwire.MaxBytes/8)
				for i := range uint32(readwire.MaxBytes / 8) {
					if err := m.Put(i, n+1); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.Add(1, m); err != nil {
					t.Fatal(err)
				}
				current.Store(n + 1)
				m.Close()
				time.Sleep(time.Millisecond)
				if err := r.Remove(1); err != nil {
					t.Fatal(err)
				}
			}
			close(done)
			readers.Wait()
			if found.Load() == 0 || missed.Load() == 0 {
				t.Errorf("%d readings found a region and %d none: nothing is proved", found.Load(), missed.Load())
			}
			t.Logf("%d readings found a region, %d found none", found.Load(), missed.Load())
		})
	}
}
