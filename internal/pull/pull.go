package pull

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/region"
	"outsight/internal/region/credit"
)

// Lease is what a server of a group has until it is over: Term is greater than that of all leases that were taken or
// renewed before, of any server. Members are those that have one.
type Lease struct {
	Term    uint64
	Members []string
}

// Group are servers that share the hosts among them, and tell each other what they have read.
type Group interface {
	// Renew takes the lease of a member, or renews it.
	Renew(ctx context.Context, member string) (Lease, error)
	// Leave gives it back.
	Leave(ctx context.Context, member string) error
	// Send tells the others, who get it if they can.
	Send(message []byte) error
	// Receive calls take with what others send, and what this one does, until ctx ends.
	Receive(ctx context.Context, take func(message []byte)) error
	// Dropped is how many messages were lost because they were not taken fast enough.
	Dropped() uint64
}

// Options of New. Key, Take and Newest must be there.
type Options struct {
	Key region.Key
	// DialOptions say how hosts are read; without a Transport it is TransportAuto.
	DialOptions
	// Credit bounds the bytes on the way from all hosts together; 0 is no bound.
	Credit int
	// Take takes an encoded frame of a tenant's host. wantKey asks for a key frame.
	Take func(ctx context.Context, tenant string, encoded []byte) (wantKey bool, err error)
	// Newest are the newest frames that there are of a tenant's hosts. Settled waits until all that were taken before this
	// process began are among them; nil where they are at once.
	Newest  func(ctx context.Context, tenant string) ([]*frame.Frame, error)
	Settled func(ctx context.Context) error
	// Group is nil where this server is alone. Member is its name in it.
	Group  Group
	Member string
	Logger *slog.Logger
}

const (
	// leastDeadline is the least time for a reading, firstDeadline that for the first one of a connection: names and
	// histograms are read too, perhaps of many hosts at once, and where all were late together, all would begin anew.
	leastDeadline = time.Second
	firstDeadline = 10 * time.Second
	// waitingReadings is how many readings may wait for each goroutine that makes frames.
	waitingReadings = 64
	// settledWithin is for how long Options.Settled may wait.
	settledWithin = 30 * time.Second
	// leaseEvery is how often a lease is renewed, renewWithin for how long that is tried.
	leaseEvery  = 300 * time.Millisecond
	renewWithin = time.Second
)

// Pull reads hosts.
type Pull struct {
	options Options
	window  *credit.Window
	hosts   []*source
	by      map[string]*source
	// makers have the queues of the goroutines that make frames: each host has one.
	makers []chan *reading
	lease  atomic.Pointer[Lease]
	counts counts
}

// source is a host that is read.
type source struct {
	Host
	// maker is an index of Pull.makers.
	maker int
	// wake is written to when another server may have to read.
	wake chan struct{}

	mu sync.Mutex // guards what follows
	// status is what is known of the host, handing which servers cannot read it.
	status  Status
	handing handing
}

// Status is how the reading of a host is going on.
type Status struct {
	Address string
	// Name of the host; empty before the first reading.
	Name string
	// Mine says that this server reads it. Otherwise another one of the group does.
	Mine bool
	// Read says that a reading has come since the host is this server's.
	Read bool
	// Late is why the last reading failed; empty where it did not, or where another one reads. Error is the whole of it.
	Late  Reason
	Error string
	// HandedOn says that this server cannot read it, and another one is to.
	HandedOn bool
	// ApplicationsRefused is how many of applications' own metrics were none that may be, or too many, and ApplicationsLeftOut
	// how many the host had no room for.
	ApplicationsRefused, ApplicationsLeftOut int
	// By is the transport, At the time of the newest reading that came, whoever read.
	By string
	At time.Time
}

// New makes a Pull of hosts, which CheckHosts has found right. Nothing is read before Run.
func New(hosts []Host, o Options) (*Pull, error) {
	o.Transport = cmp.Or(o.Transport, TransportAuto)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Pull{options: o, by: make(map[string]*source, len(hosts)),
		makers: make([]chan *reading, min(runtime.NumCPU(), max(len(hosts), 1)))}
	if o.Credit > 0 {
		var err error
		if p.window, err = credit.New(o.Credit); err != nil {
			return nil, err
		}
	}
	for i := range p.makers {
		p.makers[i] = make(chan *reading, waitingReadings)
	}
	for i, h := range hosts {
		s := &source{Host: h, maker: i % len(p.makers), wake: make(chan struct{}, 1),
			status: Status{Address: h.Address, Mine: o.Group == nil}, handing: handing{interval: h.Interval}}
		p.hosts = append(p.hosts, s)
		p.by[h.Address] = s
	}
	return p, nil
}

// Run reads until ctx ends.
func (p *Pull) Run(ctx context.Context) error {
	known, err := p.known(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, queue := range p.makers {
		running.Go(func() { p.makeFrames(ctx, queue, known) })
	}
	failed := make(chan error, 1)
	if p.options.Group != nil {
		running.Go(func() { p.keepLease(ctx) })
		running.Go(func() {
			if err := p.receive(ctx); err != nil {
				failed <- err
			}
		})
	}
	for _, s := range p.hosts {
		running.Go(func() { p.read(ctx, s) })
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// hostKey is a host of a tenant.
type hostKey struct{ tenant, host string }

// known tells of which hosts there are frames. A frame that an earlier process has made, and that is not stored yet, has
// what a host's agent counted since it began: it must not be counted once more. Where it cannot be known whether there is
// such a one, there is.
func (p *Pull) known(ctx context.Context) (func(hostKey) earlier, error) {
	if p.options.Settled != nil {
		within, cancel := context.WithTimeout(ctx, settledWithin)
		err := p.options.Settled(within)
		cancel()
		if ctx.Err() != nil {
			return nil, nil
		}
		if err != nil {
			begin := time.Now()
			p.options.Logger.Warn("hosts count from now on: it is not known which frames there are", "error", err)
			return func(hostKey) earlier { return earlier{true, begin} }, nil
		}
	}
	all, tenants := map[hostKey]earlier{}, map[string]bool{}
	for _, s := range p.hosts {
		if tenants[s.Tenant] {
			continue
		}
		tenants[s.Tenant] = true
		newest, err := p.options.Newest(ctx, s.Tenant)
		if err != nil {
			return nil, fmt.Errorf("looking for frames of hosts to be read: %w", err)
		}
		for _, f := range newest {
			all[hostKey{s.Tenant, f.Host}] = earlier{true, f.Time}
		}
	}
	return func(of hostKey) earlier { return all[of] }, nil
}

// connection is how a host is read by this server at the moment.
type connection struct {
	reader    credit.ReadCloser
	collector *region.Collector
	by        string
}

func (c *connection) close() {
	if c.reader != nil {
		_ = c.reader.Close() // nothing is sent any more
	}
	*c = connection{}
}

// read reads a host at each whole interval while it is this server's.
func (p *Pull) read(ctx context.Context, s *source) {
	var c connection
	defer c.close()
	codec, err := newReadingCodec()
	if err != nil {
		panic("BUG: making a compressor: " + err.Error())
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for number := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		lease, mine := p.owns(s)
		if !mine && !p.isDue(s) {
			c.close()
		} else {
			number++
			r, tell := p.readOnce(ctx, s, &c)
			if r == nil && tell {
				p.tell(codec, &reading{From: s.Address, Reader: p.options.Member, Term: lease.Term, Number: number, Cannot: true})
			}
			if r != nil {
				r.Reader, r.Term, r.Number = p.options.Member, lease.Term, number
				p.tell(codec, r)
				p.put(s, r)
			}
			p.shareOne(s)
		}
		now := time.Now()
		timer.Reset(now.Truncate(s.Interval).Add(s.Interval).Sub(now))
	}
}

// readOnce is nil where the host is late; cannot says that the others are to be told.
func (p *Pull) readOnce(ctx context.Context, s *source, c *connection) (r *reading, cannot bool) {
	begin := time.Now()
	sample, err := p.collect(ctx, s, c)
	p.counts.readNS.Add(uint64(time.Since(begin)))
	if ctx.Err() != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handing.tried = begin
	if err != nil {
		c.close()
		reason := ReasonOf(err)
		if s.status.Mine { // else another server reads it, and this one tries whether it can again
			if s.status.Late == "" {
				p.options.Logger.Warn("a host cannot be read", "host", s.Address, "reason", reason, "error", err)
			}
			s.status.Late, s.status.Error = reason, err.Error()
		}
		p.counts.failed[slices.Index(Reasons, reason)].Add(1)
		return nil, p.options.Group != nil && s.handing.fail(p.options.Member, begin, time.Now())
	}
	s.status.Read = s.status.Mine
	s.handing.failed = 0
	s.handing.succeed(p.options.Member)
	if s.status.Late != "" {
		p.options.Logger.Info("a host can be read again", "host", s.Address)
	}
	p.counts.readings.Add(1)
	p.counts.bytes.Add(uint64(sample.Bytes))
	if err := sample.ApplicationsError; err != nil {
		p.counts.failedApplications[slices.Index(Reasons, ReasonOf(err))].Add(1)
	}
	if sample.HasApplications {
		s.status.ApplicationsRefused, s.status.ApplicationsLeftOut = sample.ApplicationsRefused, sample.ApplicationsLeftOut
	}
	r = readingOf(sample)
	r.From, r.At, r.By = s.Address, begin, c.by
	s.status.Late, s.status.Error = "", ""
	return r, false
}

func (p *Pull) collect(ctx context.Context, s *source, c *connection) (*region.Sample, error) {
	deadline := max(s.Interval, leastDeadline)
	if c.reader == nil {
		dialling, cancel := context.WithTimeout(ctx, deadline)
		r, by, err := Dial(dialling, s.Address, p.options.Key, p.options.DialOptions)
		if cancel(); err != nil {
			return nil, err
		}
		if c.reader, c.by = r, by; p.window != nil {
			c.reader = p.window.Within(r)
		}
		c.collector = region.NewCollector(c.reader)
		if s.Interval < framePeriod {
			c.collector.Thorough = framePeriod // that of frames
		}
		deadline = max(deadline, firstDeadline)
	}
	within, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return c.collector.Collect(within)
}

// tell sends a reading to the others of the group.
func (p *Pull) tell(codec *readingCodec, r *reading) {
	if p.options.Group == nil {
		return
	}
	message, err := codec.encode(r)
	if err == nil {
		err = p.options.Group.Send(message)
	}
	if err != nil {
		if p.counts.unsent.Add(1) == 1 {
			p.options.Logger.Warn("other servers were not told what was read", "host", r.From, "error", err)
		}
	}
}

// put queues a reading for the goroutine that makes the host's frames. Where that is behind, the reading is dropped: the
// next one has what it counted.
func (p *Pull) put(s *source, r *reading) {
	select {
	case p.makers[s.maker] <- r:
	default:
		p.counts.dropped.Add(1)
	}
}

// receive queues what others have read.
func (p *Pull) receive(ctx context.Context) error {
	codec, err := newReadingCodec()
	if err != nil {
		return err
	}
	return p.options.Group.Receive(ctx, func(message []byte) {
		r, err := codec.decode(message)
		if err != nil {
			if p.counts.malformed.Add(1) == 1 {
				p.options.Logger.Warn("another server sent what is no reading", "error", err)
			}
			return
		}
		s := p.by[r.From]
		if s == nil || r.Reader == p.options.Member {
			return
		}
		s.mu.Lock()
		changed := r.Cannot
		if r.Cannot {
			s.handing.note(r.Reader, time.Now())
		} else {
			changed = s.handing.succeed(r.Reader)
		}
		s.mu.Unlock()
		if changed {
			p.shareOne(s)
		}
		if !r.Cannot {
			p.put(s, r)
		}
	})
}

// makeFrames makes frames of the readings of a queue.
func (p *Pull) makeFrames(ctx context.Context, queue <-chan *reading, known func(hostKey) earlier) {
	makers, buffer := map[string]*maker{}, []byte(nil)
	for {
		var r *reading
		select {
		case <-ctx.Done():
			return
		case r = <-queue:
		}
		s, m := p.by[r.From], makers[r.From]
		switch {
		case m != nil && m.isOlder(r):
			p.counts.stale.Add(1)
			continue
		case m == nil || m.began != r.EpochNS:
			before := known(hostKey{s.Tenant, r.Host})
			if m != nil && m.framed.After(before.time) {
				before = earlier{true, m.framed}
			}
			m = newMaker(r, before)
			makers[r.From] = m
		}
		m.take(r)
		s.mu.Lock()
		s.status.Name, s.status.By, s.status.At = r.Host, r.By, r.At
		s.mu.Unlock()
		if !m.isDue(s.Interval) {
			continue
		}
		f := m.frame()
		buffer = frame.Encode(buffer[:0], f, m.key)
		wantKey, err := p.options.Take(ctx, s.Tenant, buffer)
		switch {
		case err == nil:
			p.counts.frames.Add(1)
			if f.IsKey() {
				m.key = f
			}
			if wantKey {
				m.key = nil
			}
		case ctx.Err() == nil:
			if p.counts.failedFrames.Add(1) == 1 {
				p.options.Logger.Warn("a frame of a host that was read was not taken", "host", r.Host, "error", err)
			}
			if f.IsKey() {
				m.key = nil
			}
		}
	}
}

// keepLease keeps this server's lease, and lets it read what is its own by now. Where the lease cannot be renewed, it goes
// on with what it read: others may read the same meanwhile, which changes no count.
func (p *Pull) keepLease(ctx context.Context) {
	tick := time.NewTicker(leaseEvery)
	defer tick.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, renewWithin)
		lease, err := p.options.Group.Renew(within, p.options.Member)
		cancel()
		switch {
		case err == nil:
			before := p.lease.Swap(&lease)
			if before == nil || !slices.Equal(before.Members, lease.Members) {
				p.options.Logger.Info("servers that read hosts", "members", len(lease.Members))
				p.share()
			}
		case ctx.Err() == nil:
			p.counts.unrenewed.Add(1)
		}
		select {
		case <-ctx.Done():
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewWithin)
			if err := p.options.Group.Leave(leaving, p.options.Member); err != nil {
				p.options.Logger.Debug("the lease ends by itself", "error", err)
			}
			cancel()
			return
		case <-tick.C:
		}
	}
}

// share wakes the readers of hosts that are this server's now and were not.
func (p *Pull) share() {
	for _, s := range p.hosts {
		p.shareOne(s)
	}
}

// shareOne is share of one host.
func (p *Pull) shareOne(s *source) {
	_, mine := p.owns(s)
	s.mu.Lock()
	was := s.status.Mine
	if s.status.Mine = mine; !mine {
		if was && s.status.Late != "" {
			p.options.Logger.Warn("a host that cannot be read is handed on to another server", "host", s.Address)
		}
		s.status.Read, s.status.Late, s.status.Error = false, "", ""
		s.status.ApplicationsRefused, s.status.ApplicationsLeftOut = 0, 0
	}
	s.mu.Unlock()
	if mine && !was {
		p.counts.takenOver.Add(1)
		select {
		case s.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// isDue reports whether this server is to try a host that it has handed on.
func (p *Pull) isDue(s *source) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.options.Group != nil && s.handing.isDue(p.options.Member, time.Now())
}

// owns reports whether this server is to read a host: of the members of the group, the one with the greatest hash of its
// name with the host's (rendezvous hashing). So a member that goes away hands its own hosts to the others, and no other
// host changes hands. Members that cannot read the host are left out, as long as another one may.
func (p *Pull) owns(s *source) (Lease, bool) {
	if p.options.Group == nil {
		return Lease{}, true
	}
	lease := p.lease.Load()
	if lease == nil {
		return Lease{}, false
	}
	s.mu.Lock()
	able := s.handing.able(lease.Members, time.Now())
	s.mu.Unlock()
	return *lease, owner(able, s.Address) == p.options.Member
}

// owner is the member that reads a host; empty where there is none.
func owner(members []string, host string) (who string) {
	greatest := uint64(0)
	for _, m := range members {
		h := fnv.New64a()
		h.Write([]byte(m + "\x00" + host))
		// The last bytes of FNV change few bits: they are mixed (the finalizer of MurmurHash3).
		n := h.Sum64()
		n ^= n >> 33
		n *= 0xff51afd7ed558ccd
		n ^= n >> 33
		if who == "" || n > greatest || n == greatest && m > who {
			who, greatest = m, n
		}
	}
	return who
}

// Statuses are those of all hosts, in their order.
func (p *Pull) Statuses() []Status {
	all := make([]Status, len(p.hosts))
	for i, s := range p.hosts {
		s.mu.Lock()
		all[i] = s.status
		all[i].HandedOn = !s.status.Mine && s.handing.isHandedOn(p.options.Member, time.Now())
		s.mu.Unlock()
	}
	return all
}

// Features are the hosts that cannot be read, and why.
func (p *Pull) Features() (all []model.Feature) {
	for _, s := range p.Statuses() {
		if s.Late == "" {
			continue
		}
		all = append(all, model.Feature{Name: "pull/" + s.Address, Purpose: "figures of this host, which is read from outside",
			State: model.FeatureAbsent, Reason: fmt.Sprintf("%s: %s", s.Late, s.Error), Remedy: remedies[s.Late]})
	}
	return all
}

var remedies = map[Reason]string{
	Deadline: "see whether the host is up, and --region-listen of its agent",
	Refused:  "compare --pull-key-file with --region-key-file of its agent, and see its --region-allow",
	Gone:     "see whether its agent runs",
	Version:  "run the same release on the host and here",
}
