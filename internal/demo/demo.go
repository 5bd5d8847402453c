package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// stage is where parts run: Docker, or groups and namespaces of the launcher's own.
type stage interface {
	mode() string
	// clean removes what an earlier run has left.
	clean(ctx context.Context) error
	// prepare makes what the parts have in common.
	prepare(ctx context.Context, parts []*part) error
	// host by which other parts reach p.
	host(p *part) string
	// start starts p and returns its output; it sets what Part has not known so far.
	start(ctx context.Context, p *part, at func(role string) string) (io.ReadCloser, error)
	// send hands a control to p and makes p read it.
	send(ctx context.Context, p *part, control []byte) error
	// stop ends p in order; killing it is close's work.
	stop(ctx context.Context, p *part) error
	// close removes everything that start and prepare have made.
	close(ctx context.Context) error
}

// Shop is a running shop. Its methods are safe for concurrent use.
type Shop struct {
	options Options
	logger  *slog.Logger
	stage   stage
	lock    net.Listener
	without []string
	notices []string
	parts   []*part

	mu       sync.Mutex // guards control and the order in which services get it
	control  control
	stopOnce sync.Once
	stopErr  error
}

// Start starts the shop and returns when all of it serves and the load has begun. Where it
// fails, what had been made is removed. ctx bounds the start alone; Stop ends the shop.
func Start(ctx context.Context, o Options) (*Shop, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Shop{options: o, logger: o.Logger, control: control{Rate: o.Rate}}
	// An abstract socket as the lock: it ends with the process, however that ends.
	s.lock, err = net.Listen("unix", "@"+o.scope())
	if err != nil {
		return nil, fmt.Errorf("demo: another one runs on this host (lock %q): %w", o.scope(), err)
	}
	if err := s.start(ctx); err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("demo: %w", err), s.Stop(end))
	}
	return s, nil
}

// stopTime bounds the removal of a shop whose start has failed.
const stopTime = 60 * time.Second

func (s *Shop) start(ctx context.Context) error {
	var err error
	if s.stage, err = s.openStage(ctx); err != nil {
		return err
	}
	s.leaveOut()
	if err := s.stage.clean(ctx); err != nil {
		return fmt.Errorf("removing what an earlier run has left: %w", err)
	}
	s.logger.Debug("demo: host is clean", "mode", s.stage.mode())
	s.parts = plan(s.options, s.without)
	if err := s.stage.prepare(ctx, s.parts); err != nil {
		return err
	}
	s.logger.Debug("demo: network and images are made")
	for wave := 1; wave <= 3; wave++ {
		if err := s.startWave(ctx, wave); err != nil {
			return err
		}
		s.logger.Debug("demo: a wave of containers serves", "wave", wave)
	}
	s.logger.Info("demo shop runs", "mode", s.stage.mode(), "containers", len(s.parts), "rate", s.options.Rate)
	return nil
}

func (s *Shop) openStage(ctx context.Context) (stage, error) {
	if !s.options.NoDocker {
		d, err := openDocker(ctx, s.options)
		if err == nil {
			s.cleanBare(ctx)
			return d, nil
		}
		s.notice("Docker does not answer; the demo makes its own control groups and namespaces: %v", err)
	}
	b, err := openBare(s.options)
	if err != nil {
		return nil, err // and not a stage that is a nil pointer
	}
	return b, nil
}

// cleanBare removes what a run without Docker has left, now that Docker answers.
func (s *Shop) cleanBare(ctx context.Context) {
	h, err := readHierarchies(s.options.ProcFS)
	if err == nil && os.Geteuid() == 0 {
		err = cleanBare(ctx, s.options, cgroups{h, s.options.scope()})
	}
	if err != nil { // no reason not to run in Docker
		s.logger.Warn("demo: removing what an earlier run has left", "error", err)
	}
}

func (s *Shop) notice(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	s.notices = append(s.notices, n)
	s.logger.Warn(n)
}

// leaveOut decides which parts there are.
func (s *Shop) leaveOut() {
	s.without = slices.Clone(s.options.Without)
	for _, p := range packages {
		if !slices.Contains(s.without, p.role) && findProgram(p.program) == "" {
			s.without = append(s.without, p.role)
			s.notice("no %s on this host, so the shop does without; to have it: apt-get install --no-install-recommends %s",
				p.program, p.name)
		}
	}
	if slices.Contains(s.without, "redis") {
		s.without = append(s.without, "worker") // its queue is in Redis
	}
}

// at is the address of a role's server.
func (s *Shop) at(role string) string {
	for _, p := range s.parts {
		if p.Role == role {
			return fmt.Sprintf("%s:%d", s.stage.host(p), p.port)
		}
	}
	panic("BUG: address of " + role + ", which is not part of the shop")
}

func (s *Shop) startWave(ctx context.Context, wave int) error {
	return s.each(func(p *part) error {
		if p.wave != wave {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("starting %s: %w", p.Name, err)
		}
		r, err := s.stage.start(ctx, p, s.at)
		if err != nil {
			return fmt.Errorf("starting %s: %w", p.Name, err)
		}
		p.output = newOutput(p.Name, p.ready)
		go p.output.follow(r)
		return p.output.waitReady(ctx)
	})
}

// each runs f for all parts at the same time and joins the errors.
func (s *Shop) each(f func(*part) error) error {
	errs := make([]error, len(s.parts))
	var wait sync.WaitGroup
	for i, p := range s.parts {
		wait.Go(func() { errs[i] = f(p) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Stop ends all parts, the load first, and removes everything that Start has made. The second
// call returns what the first did. ctx bounds it; what could not be removed is in the error,
// and the next Start removes it.
func (s *Shop) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { s.stopErr = s.stop(ctx) })
	return s.stopErr
}

func (s *Shop) stop(ctx context.Context) error {
	defer s.lock.Close()
	if s.stage == nil {
		return nil
	}
	var errs []error
	for _, first := range []bool{true, false} { // the load first: nobody else sees an error then
		errs = append(errs, s.each(func(p *part) error {
			if p.output == nil || (p.Role == "load") != first {
				return nil
			}
			return s.stage.stop(ctx, p)
		}))
	}
	s.logger.Debug("demo: containers have ended")
	errs = append(errs, s.stage.close(ctx))
	s.logger.Debug("demo: everything is removed")
	for _, p := range s.parts {
		if p.output == nil {
			continue
		}
		select {
		case <-p.output.ended: // so that Report has the last line
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("waiting for the end of %s: %w", p.Name, ctx.Err()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("demo: stopping: %w", err)
	}
	return nil
}

// Mode is "docker" or "cgroup".
func (s *Shop) Mode() string { return s.stage.mode() }

// Parts lists the containers of the shop.
func (s *Shop) Parts() []Part {
	list := make([]Part, len(s.parts))
	for i, p := range s.parts {
		list[i] = p.Part
	}
	return list
}

// Edges is the true edge list of this shop.
func (s *Shop) Edges() []Edge { return edgesOf(s.options.Instance, s.without) }

// Notices report what is different from the whole shop, and what to do about it.
func (s *Shop) Notices() []string { return slices.Clone(s.notices) }

// Report is what the load generator saw, at most a second ago; after Stop it is final.
func (s *Shop) Report() LoadReport {
	for _, p := range s.parts {
		if p.Role != "load" || p.output == nil {
			continue
		}
		if st, _ := p.output.last(); st.Load != nil {
			return *st.Load
		}
	}
	return LoadReport{}
}

// ours reports a service that takes controls and writes a status.
func (p *part) ours() bool { return p.ready == "" }

func (s *Shop) String() string {
	names := make([]string, len(s.parts))
	for i, p := range s.parts {
		names[i] = p.Name
	}
	return strings.Join(names, " ")
}
