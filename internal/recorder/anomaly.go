package recorder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/model"
)

// AnomalyOptions say which anomalies a Flight keeps longer than the rest. The zero value keeps none.
type AnomalyOptions struct {
	// Detect finds the anomalies in recordings of all containers; nil keeps none.
	Detect func([]*csvy.Recording) []model.Anomaly
	// Every is the time between two scans (default 30 s), Around what is kept before and after an
	// anomaly (default 10 s).
	Every, Around time.Duration
	// Max anomalies are kept (default 64), MaxBytes of samples with them (default 4 MiB): whichever
	// is reached first. The newer half stays, and of the older one those that made wait the most.
	Max, MaxBytes int
	// Directory has a file of each, which the next Flight reads; empty keeps them in memory alone.
	Directory string
}

const (
	// settled is how long ago an anomaly must have ended: what comes after it shows what it is.
	settled = 2 * time.Second
	// history is what a scan reads before what is new, to know what is usual.
	history = 10 * time.Second
	// reach is the length of an anomaly: it began so long before its end, or may be found anew with
	// an end that is as much earlier.
	reach = time.Second
)

// KeptAnomaly is an anomaly whose surroundings are kept. Number is what to call it.
type KeptAnomaly struct {
	Number uint64
	model.Anomaly
}

// Anomalies are those that are kept, oldest first.
type Anomalies struct {
	List []KeptAnomaly
	// Dropped is how many had to make room, Problem why some are in memory alone; empty if none is.
	Dropped uint64
	Problem string
}

// anomaly is as in its file.
type anomaly struct {
	KeptAnomaly
	Data FlightData
	// whole is true when all that follows it has been kept, saved when it is in the directory.
	whole, saved bool
}

// anomalies are the part of a Flight that keeps them. The mutex of the Flight guards it; only the
// goroutine of Run changes it.
type anomalies struct {
	o    AnomalyOptions
	host csvy.Host
	list []*anomaly
	// scanned is up to where anomalies have been looked for. strainedFrom and strained are when a tick first and last ended
	// a step that one may be made of which was not looked at yet; strainedFrom is 0 while there is none.
	scanned, strainedFrom, strained uint64
	next                            uint64
	bytes                           int
	dropped                         uint64
	problem                         error
}

func newAnomalies(o AnomalyOptions, nowNS uint64) anomalies {
	a := anomalies{o: o, scanned: nowNS, next: 1}
	if o.Detect == nil {
		return a
	}
	a.o.Every, a.o.Around = cmp.Or(o.Every, 30*time.Second), cmp.Or(o.Around, 10*time.Second)
	a.o.Max, a.o.MaxBytes = cmp.Or(o.Max, 64), cmp.Or(o.MaxBytes, 4<<20)
	a.host = csvy.ThisHost()
	if o.Directory != "" {
		a.load()
	}
	return a
}

// least is how long ticks must be kept for the scans and what they find.
func (o *AnomalyOptions) least() time.Duration {
	if o.Detect == nil {
		return 0
	}
	return o.Every + settled + max(history, reach+o.Around)
}

// The least values of the steps that saturations are made of, a little lower than those of
// outsight/internal/report. A test holds the two against each other.
const (
	strainCPU, strainWait, strainHost = 0.89, 0.49, 0.94
	strainStallCPU                    = 0.51
)

// strains reports whether a container's step of that length may be part of a saturation.
func strains(from, to *model.TickSample, length float64) bool {
	cpu := float64(to.CPUNS - from.CPUNS)
	return cpu >= strainCPU*length || float64(to.RunQueueNS-from.RunQueueNS) >= strainWait*length ||
		from.Serving > 0 && to.Serving >= from.Serving && to.SentBytes == from.SentBytes && cpu < strainStallCPU*length
}

// scan finds the anomalies that have ended since the last one, and keeps what is around them.
func (f *Flight) scan(nowNS uint64) {
	defer f.spend()()
	until := nowNS - uint64(settled)
	f.mu.Lock()
	from, clock := f.kept.scanned, f.sums.clock
	begin, end := f.kept.strainedWithin(from, nowNS)
	var data *FlightData
	if begin < end {
		data = f.data(begin)
	}
	f.kept.scanned = until
	f.kept.looked(until)
	f.mu.Unlock()
	var found []model.Anomaly
	if data != nil {
		data.Until = clock.at(end)
		r := InMemory{Rows: int((end - begin) / uint64(data.Interval))}
		// What there is of a block that cannot be read is scanned, too.
		_, _ = data.Write(clock.at(begin), Options{Host: f.kept.host, Create: r.Create})
		found = f.kept.o.Detect(r.List)
	}
	f.mu.Lock()
	for _, a := range found {
		if a.To.After(clock.at(from-uint64(reach))) && !a.To.After(clock.at(until)) && !f.knows(&a) {
			kept := &anomaly{KeptAnomaly: KeptAnomaly{f.kept.next, a}, Data: *data}
			kept.Data.From, kept.Data.Until = a.From.Add(-f.kept.o.Around), a.To.Add(f.kept.o.Around)
			kept.Data.Blocks = nil
			f.kept.list = append(f.kept.list, kept)
			f.kept.next++
		}
	}
	for _, a := range f.kept.list {
		if !a.whole {
			f.gather(a)
		}
	}
	dropped := f.makeRoom()
	f.mu.Unlock()
	f.save(false)
	for _, a := range dropped {
		if a.saved {
			_ = os.Remove(f.kept.fileOf(a)) // of one that could not be written there is none
		}
	}
}

// strain takes note of a tick that ended a step which an anomaly may be made of.
func (a *anomalies) strain(ns uint64) {
	if a.strainedFrom == 0 {
		a.strainedFrom = ns
	}
	a.strained = ns
}

// strainedWithin is the time that a scan has to read of what was kept since then: with what is usual before, and what followed
// where that is known already. Both are 0 where no tick was strained.
func (a *anomalies) strainedWithin(from, now uint64) (begin, end uint64) {
	if a.strainedFrom == 0 || a.strained+uint64(reach+settled) < from {
		return 0, 0
	}
	begin = max(from, a.strainedFrom)
	return begin - min(begin, uint64(history)), min(now, a.strained+uint64(reach+settled))
}

// looked forgets strained ticks that the next scan, of what is after then, need not look at.
func (a *anomalies) looked(until uint64) {
	if a.strained+uint64(reach+settled) < until {
		a.strainedFrom = 0
	}
}

func (f *Flight) knows(a *model.Anomaly) bool {
	return slices.ContainsFunc(f.kept.list, func(k *anomaly) bool {
		return k.Resource == a.Resource && k.ID == a.ID && k.From.Before(a.To) && a.From.Before(k.To)
	})
}

// gather adds the blocks around an anomaly that are newer than those it has. mu must be held.
func (f *Flight) gather(a *anomaly) {
	c := clock{a.Data.Wall, a.Data.MonotonicNS}
	for _, b := range f.blocks {
		n := len(a.Data.Blocks)
		if c.at(b.LastNS).Before(a.Data.From) || n > 0 && b.FirstNumber <= a.Data.Blocks[n-1].FirstNumber {
			continue
		}
		if c.at(b.FirstDueNS).After(a.Data.Until) {
			a.whole = true
			return
		}
		a.Data.Blocks = append(a.Data.Blocks, b)
		a.whole = !c.at(b.LastNS).Before(a.Data.Until)
	}
}

// makeRoom drops what is more than the bounds. mu must be held.
func (f *Flight) makeRoom() (dropped []*anomaly) {
	for {
		f.kept.bytes = f.kept.keptBytes()
		if len(f.kept.list) <= f.kept.o.Max && f.kept.bytes <= f.kept.o.MaxBytes {
			return dropped
		}
		older := f.kept.list[:(len(f.kept.list)+1)/2]
		least := 0
		for i, a := range older {
			if a.WaitedMS < older[least].WaitedMS {
				least = i
			}
		}
		dropped = append(dropped, f.kept.list[least])
		f.kept.list = slices.Delete(f.kept.list, least, least+1)
		f.kept.dropped++
	}
}

// keptBytes is what the blocks take; those that anomalies share count once.
func (a *anomalies) keptBytes() int {
	seen, bytes := map[*byte]bool{}, 0
	for _, kept := range a.list {
		for i := range kept.Data.Blocks {
			b := &kept.Data.Blocks[i]
			if len(b.Data) > 0 && !seen[&b.Data[0]] {
				seen[&b.Data[0]] = true
				bytes += b.size()
			}
		}
	}
	return bytes
}

// Anomalies are those whose surroundings are kept; nil without a detector.
func (f *Flight) Anomalies() *Anomalies {
	if f.kept.o.Detect == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := &Anomalies{List: []KeptAnomaly{}, Dropped: f.kept.dropped}
	for _, kept := range f.kept.list {
		a.List = append(a.List, kept.KeptAnomaly)
	}
	if f.kept.problem != nil {
		a.Problem = f.kept.problem.Error()
	}
	return a
}

// Anomaly is what is kept around the anomaly with that number; nil if there is none.
func (f *Flight) Anomaly(number uint64) *FlightData {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.kept.list {
		if a.Number == number {
			return f.around(a)
		}
	}
	return nil
}

// around is an anomaly's data up to now. mu must be held.
func (f *Flight) around(a *anomaly) *FlightData {
	now := *a
	now.Data.Blocks = slices.Clone(a.Data.Blocks)
	if !a.whole {
		f.gather(&now)
		if len(f.open.Data) > 0 {
			now.Data.Blocks = append(now.Data.Blocks, f.copyOpen())
		}
	}
	return &now.Data
}

// save writes the files of anomalies that are whole; at the end those of all.
func (f *Flight) save(all bool) {
	if f.kept.o.Directory == "" {
		return
	}
	for _, a := range f.kept.list {
		if a.saved || !a.whole && !all {
			continue
		}
		f.mu.Lock()
		now := anomaly{KeptAnomaly: a.KeptAnomaly, Data: *f.around(a)}
		f.mu.Unlock()
		// A file that cannot be written is not tried again: the disk is full, or not ours.
		a.saved = true
		f.tellProblem(now.write(f.kept.fileOf(a)))
	}
}

func (a *anomaly) write(path string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("BUG: an anomaly as JSON: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keeping an anomaly: %w", err)
	}
	// Whole or not at all.
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		_ = os.Remove(path + ".new")
		return fmt.Errorf("keeping an anomaly: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keeping an anomaly: %w", err)
	}
	return nil
}

func (f *Flight) tellProblem(err error) {
	if err != nil {
		f.mu.Lock()
		f.kept.problem = err
		f.mu.Unlock()
	}
}

func (a *anomalies) fileOf(kept *anomaly) string {
	return filepath.Join(a.o.Directory, strconv.FormatUint(kept.Number, 10)+".json")
}

// maxAnomalyFile bounds what is read of a file, in bytes: larger ones are damaged.
const maxAnomalyFile = 64 << 20

// read reads the file of an anomaly. It fails where what is in it makes no sense.
func (a *anomaly) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAnomalyFile+1))
	if err != nil {
		return err
	}
	if len(text) > maxAnomalyFile {
		return fmt.Errorf("it has more than %d bytes", maxAnomalyFile)
	}
	if err := json.Unmarshal(text, a); err != nil {
		return err
	}
	if d := a.Data.Interval; d <= 0 || d > time.Minute {
		return fmt.Errorf("its interval is %v", d)
	}
	for _, b := range a.Data.Blocks {
		for _, t := range b.Targets {
			if t.Container == nil {
				return errors.New("a part of a block is of no container")
			}
		}
	}
	return nil
}

// load reads what an earlier Flight has kept. What cannot be read stays where it is. Blocks that
// several files have are one again.
func (a *anomalies) load() {
	type name struct {
		number, due, last uint64
		bytes             int
	}
	shared := make(map[name]Block)
	files, _ := filepath.Glob(filepath.Join(a.o.Directory, "*.json"))
	for _, file := range files {
		kept := &anomaly{whole: true, saved: true}
		err := kept.read(file)
		if err == nil && a.fileOf(kept) != file {
			err = fmt.Errorf("it says that it is number %d", kept.Number)
		}
		if err != nil {
			a.problem = errors.Join(a.problem, fmt.Errorf("reading the anomaly in %s: %w; remove the file if it is not needed",
				file, err))
			if number, err := strconv.ParseUint(filepath.Base(file[:len(file)-len(".json")]), 10, 63); err == nil {
				a.next = max(a.next, number+1)
			}
			continue
		}
		for i, b := range kept.Data.Blocks {
			key := name{b.FirstNumber, b.FirstDueNS, b.LastNS, len(b.Data)}
			if _, found := shared[key]; !found {
				shared[key] = b
			}
			kept.Data.Blocks[i] = shared[key]
		}
		a.list = append(a.list, kept)
		a.next = max(a.next, kept.Number+1)
	}
	slices.SortFunc(a.list, func(x, y *anomaly) int { return cmp.Compare(x.Number, y.Number) })
	a.bytes = a.keptBytes()
}
