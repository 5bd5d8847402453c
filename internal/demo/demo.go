package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of a shop. The zero value is the whole shop at 120 requests a second.
type Options struct {
	Logger *slog.Logger
	// Rate of the load in requests per second, 120 if 0. About 40 of 100 requests are payments,
	// of which 333 a second saturate the payment service.
	Rate float64
	// Seed of all that is random, 1 if 0. The same seed gives the same sequence of requests.
	Seed uint64
	// Binary is the program that is put into the containers; it must call RunService for its
	// arguments after "demo-service". Empty: this program's own file.
	Binary string
	// Without names roles to leave out: "nginx", "redis" (and with it "worker").
	Without []string
	// NoDocker makes control groups and namespaces even where Docker answers.
	NoDocker bool
	// DockerHost as in "unix:///var/run/docker.sock", the environment's if empty.
	DockerHost string
	// ProcFS is the path of the proc file system, /proc if empty.
	ProcFS string
	// Instance is the first part of each container's name, "shop" if empty: lower-case letters
	// and digits, at most 12. Two shops on one host need two of them.
	Instance string
}

const defaultInstance = "shop"

var instancePattern = regexp.MustCompile(`^[a-z0-9]{1,12}$`)

func (o Options) withDefaults() (Options, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	if o.Rate < 0 || o.Rate > 1e6 {
		return o, fmt.Errorf("demo: rate %v is not between 0 and a million requests per second", o.Rate)
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.ProcFS == "" {
		o.ProcFS = "/proc"
	}
	if o.Instance == "" {
		o.Instance = defaultInstance
	}
	if !instancePattern.MatchString(o.Instance) {
		return o, fmt.Errorf("demo: instance %q is not 1 to 12 lower-case letters or digits", o.Instance)
	}
	if o.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("demo: finding the program's own file: %w", err)
		}
		o.Binary = self
	}
	return o, nil
}

// scope names everything that is made outside of containers: network, images, control groups
// and temporary files. It is how leftovers are found.
func (o Options) scope() string {
	if o.Instance == defaultInstance {
		return "outsight-demo"
	}
	return "outsight-demo-" + o.Instance
}

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
	// tell hands a control to p and makes p read it.
	tell(ctx context.Context, p *part, control []byte) error
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

	mu       sync.Mutex // guards control and the order in which services are told
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
	s.parts = plan(s.options, s.without)
	if err := s.stage.prepare(ctx, s.parts); err != nil {
		return err
	}
	for wave := 1; wave <= 3; wave++ {
		if err := s.startWave(ctx, wave); err != nil {
			return err
		}
	}
	s.logger.Info("demo shop runs", "mode", s.stage.mode(), "containers", len(s.parts), "rate", s.options.Rate)
	return nil
}

func (s *Shop) openStage(ctx context.Context) (stage, error) {
	if !s.options.NoDocker {
		d, err := openDocker(ctx, s.options)
		if err == nil {
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
			s.notice("no %s on this host, so the shop does without; to have it: apt-get install --no-install-recommends %s", p.program, p.name)
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
	errs = append(errs, s.stage.close(ctx))
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

// Notices tell what is different from the whole shop, and what to do about it.
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

// ours tells a service that takes controls and writes a status.
func (p *part) ours() bool { return p.ready == "" }

// tell carries a control out at one part and returns its status then. s.mu is held.
func (s *Shop) tell(ctx context.Context, p *part, c control) (Status, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return Status{}, err
	}
	if err := s.stage.tell(ctx, p, b); err != nil {
		return Status{}, fmt.Errorf("demo: telling %s what to do: %w", p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime+5*time.Second)
	defer cancel()
	st, err := p.output.waitRevision(ctx, c.Revision)
	if err != nil {
		return Status{}, fmt.Errorf("demo: %w", err)
	}
	return st, nil
}

// tellRoles changes the control and carries it out, one role after the other.
func (s *Shop) tellRoles(ctx context.Context, change func(*control), roles ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.control)
	s.control.Revision++
	c := s.control
	s.control.CloseIdle = false
	for _, role := range roles {
		for _, p := range s.parts {
			if p.Role != role {
				continue
			}
			if _, err := s.tell(ctx, p, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetRate changes the rate of the load, in requests per second; 0 sends none.
func (s *Shop) SetRate(ctx context.Context, rate float64) error {
	if rate < 0 || rate > 1e6 {
		return fmt.Errorf("demo: rate %v is not between 0 and a million requests per second", rate)
	}
	return s.tellRoles(ctx, func(c *control) { c.Rate = rate }, "load")
}

// Pause stops the load, waits for the requests under way, and then stops the worker's polling,
// so that nothing moves in the shop. The connections between services stay open, or are closed
// by their clients.
func (s *Shop) Pause(ctx context.Context, closeConnections bool) error {
	roles := []string{"load", "worker"}
	if closeConnections {
		roles = append(roles, "gateway", "catalogue", "cart", "payment")
	}
	return s.tellRoles(ctx, func(c *control) { c.Paused, c.CloseIdle = true, closeConnections }, roles...)
}

// Resume ends a Pause.
func (s *Shop) Resume(ctx context.Context) error {
	return s.tellRoles(ctx, func(c *control) { c.Paused = false }, "worker", "load")
}

func (s *Shop) String() string {
	names := make([]string, len(s.parts))
	for i, p := range s.parts {
		names[i] = p.Name
	}
	return strings.Join(names, " ")
}
