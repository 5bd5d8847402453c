package rdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
	"outsight/internal/region/tcp"
)

// maxReaders is how many connections the helper has room for.
const maxReaders = 64

// Source is memory to be read by others.
type Source struct {
	// ID of the region.
	ID uint32
	// File is what is mapped (shared), Bytes how much of it. Where the kernel cannot register memory that may only be read
	// (Linux 6.1), it must be possible to map it for writing.
	File  *os.File
	Bytes uint64
	// Offset in File, a multiple of the size of pages.
	Offset uint64
}

// Options of NewServer and Dial. The zero value works.
type Options struct {
	// Device is the name of an RDMA device; empty is the first with an active port.
	Device string
	// Helper is where outsight-rdma is; empty is where it is looked for.
	Helper string
	// Restarted is called where a Server had to start the helper anew: all that was added has another Place. It may be nil.
	Restarted func()
	Logger    *slog.Logger
}

// Place is where readers find what was added to a Server.
type Place struct {
	Address uint64
	Key     uint32
}

// added is a source that was added, with its place; Address is 0 where it could not be registered.
type added struct {
	Source
	place Place
	// dropped is when it was no longer to be kept, zero while it is.
	dropped time.Time
}

// Readers who have not seen yet that something is gone lose their connection when they read it: it can be read for dropAfter
// longer, of maxDropped such sources.
const (
	dropAfter  = 10 * time.Second
	maxDropped = 1024
)

// Server lets the RDMA device answer reads of regions. It is a tcp.Connector: readers ask for a connection over TCP.
type Server struct {
	sources []Source
	options Options

	// mu guards what follows. helper, entries and places are replaced when the helper has ended.
	mu      sync.Mutex
	helper  *helper
	entries []entry
	added   map[uint32]*added
	failure error

	readers                        atomic.Int64
	refused, restart, unregistered atomic.Uint64
}

// NewServer registers the sources, whose files it takes over.
func NewServer(sources []Source, o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{sources: sources, options: o, added: map[uint32]*added{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.closeFiles())
	}
	o.Logger.Info("regions are read by RDMA", "device", s.helper.device)
	return s, nil
}

// start starts the helper and registers all. mu must be held.
func (s *Server) start() error {
	s.helper, s.entries = nil, nil
	h, err := startHelper(s.options.Helper, "serve", s.options.Device)
	if err == nil {
		for i := range s.sources {
			one := &s.sources[i]
			var a answer
			if a, err = register(h, one); err != nil {
				err = errors.Join(fmt.Errorf("registering region %d: %w", one.ID, err), h.close())
				break
			}
			s.entries = append(s.entries, entry{one.ID, a.key, a.address, one.Bytes})
		}
	}
	s.failure = err
	if err == nil {
		s.helper = h
	}
	for _, one := range s.added {
		s.place(one)
	}
	return err
}

// register registers a source.
func register(h *helper, s *Source) (answer, error) {
	a, err := h.register(s.File, s.Offset, s.Bytes)
	if !errors.Is(err, unix.EACCES) {
		return a, err
	}
	// Up to Linux 6.1 memory is registered through a mapping that could be written, for which this descriptor is not good.
	// outsight-rdma makes it one that can only be read afterwards.
	writable, failed := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", s.File.Fd()), os.O_RDWR, 0)
	if failed != nil {
		return a, errors.Join(err, failed)
	}
	defer writable.Close()
	return h.register(writable, s.Offset, s.Bytes)
}

// place registers what was added. mu must be held.
func (s *Server) place(one *added) {
	if one.place = (Place{}); s.helper == nil {
		return
	}
	a, err := register(s.helper, &one.Source)
	if err != nil {
		s.unregistered.Add(1)
		s.options.Logger.Debug("memory that readers by RDMA cannot read", "region", one.ID, "error", err)
		return
	}
	one.place = Place{a.address, a.key}
}

// Add registers one more source, whose file it takes over, until Remove.
func (s *Server) Add(source Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &added{Source: source}
	s.added[source.ID] = one
	s.place(one)
}

// Place is where readers find what was added with an id; its Address is 0 where they cannot read it, and false says that
// nothing was.
func (s *Server) Place(id uint32) (Place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.added[id]
	if one == nil {
		return Place{}, false
	}
	return one.place, true
}

// Keep removes, some seconds later, all that was added with another id than these. It is to be called again and again.
func (s *Server) Keep(ids map[uint32]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	many := len(s.added)-len(ids) > maxDropped
	for id, one := range s.added {
		if ids[id] {
			one.dropped = time.Time{}
			continue
		}
		if one.dropped.IsZero() {
			one.dropped = now
		}
		if !many && now.Sub(one.dropped) < dropAfter {
			continue
		}
		if one.place.Address != 0 && s.helper != nil {
			if err := s.helper.forget(one.place.Key); err != nil {
				s.options.Logger.Debug("memory that stays registered", "region", id, "error", err)
			}
		}
		if err := one.File.Close(); err != nil {
			s.options.Logger.Debug("a file that is not closed", "region", id, "error", err)
		}
		delete(s.added, id)
	}
}

// running is the helper, which is started anew where it has ended, and what it has registered.
func (s *Server) running() (h *helper, entries []entry, err error) {
	anew := false
	defer func() {
		if anew && err == nil && s.options.Restarted != nil {
			s.options.Restarted() // when mu is free again
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.helper != nil {
		select {
		case <-s.helper.ended:
			s.restart.Add(1)
		default:
			return s.helper, s.entries, nil
		}
	}
	if anew, err = true, s.start(); err != nil {
		return nil, nil, err
	}
	return s.helper, s.entries, nil
}

// Connect implements tcp.Connector.
func (s *Server) Connect(offer []byte) ([]byte, tcp.Connection, error) {
	if s.readers.Add(1) > maxReaders {
		s.readers.Add(-1)
		s.refused.Add(1)
		return nil, nil, fmt.Errorf("more than %d readers by RDMA", maxReaders)
	}
	b, c, err := s.connect(endpoint(offer))
	if err != nil {
		s.readers.Add(-1)
		s.refused.Add(1)
		return nil, nil, err
	}
	return b, c, nil
}

func (s *Server) connect(peer endpoint) ([]byte, tcp.Connection, error) {
	h, entries, err := s.running()
	if err != nil {
		return nil, nil, err
	}
	own, err := h.openQueue()
	if err != nil {
		return nil, nil, err
	}
	if err := h.connect(own.queue(), peer); err != nil {
		return nil, nil, errors.Join(err, h.closeQueue(own.queue()))
	}
	c := &connection{server: s, helper: h, queue: own.queue(), ended: make(chan struct{})}
	go func() {
		select {
		case <-h.ended:
			c.end()
		case <-c.ended:
		}
	}()
	return appendAnswer(nil, own, entries), c, nil
}

// connection is one reader's.
type connection struct {
	server *Server
	helper *helper
	queue  uint32
	ended  chan struct{}
	once   sync.Once
}

// Ended implements tcp.Connection.
func (c *connection) Ended() <-chan struct{} { return c.ended }

func (c *connection) end() {
	c.once.Do(func() {
		c.server.readers.Add(-1)
		close(c.ended)
	})
}

// Close implements tcp.Connection: the reader can read no more.
func (c *connection) Close() error {
	err := c.helper.closeQueue(c.queue)
	c.end()
	return err
}

// Run implements the agent's regionServer: nothing runs.
func (s *Server) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Features tells whether it works.
func (s *Server) Features() []model.Feature {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := model.Feature{Name: "region/rdma", Purpose: "counters for readers on other hosts, answered by the network card",
		State: model.FeatureWorks}
	if s.failure != nil {
		f.State, f.Reason = model.FeatureAbsent, s.failure.Error()
	}
	return []model.Feature{f}
}

// Drops tells who was refused, and how often the helper had ended.
func (s *Server) Drops() []model.Drop {
	return []model.Drop{{Name: "region/rdma/readers", Count: s.refused.Load(), Capacity: maxReaders,
		Used: uint64(max(0, s.readers.Load()))}, {Name: "region/rdma/restarts", Count: s.restart.Load()},
		{Name: "region/rdma/unregistered", Count: s.unregistered.Load()}}
}

// Close ends it.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.helper != nil {
		err = s.helper.close()
		s.helper = nil
	}
	return errors.Join(err, s.closeFiles())
}

func (s *Server) closeFiles() error {
	var errs []error
	for _, one := range s.sources {
		errs = append(errs, one.File.Close())
	}
	for _, one := range s.added {
		errs = append(errs, one.File.Close())
	}
	s.sources, s.added = nil, map[uint32]*added{}
	return errors.Join(errs...)
}
