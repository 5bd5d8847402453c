package demo

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// role is a service of the shop: what it serves, what it does by itself, and how it is controlled.
type role struct {
	// handler is nil for a service that nobody calls.
	handler http.Handler
	// run works until ctx ends; nil for a service that does nothing by itself.
	run func(ctx context.Context)
	// apply carries a control out and returns when it is done; nil where there is nothing to do.
	apply func(control)
	// report adds to the status what only this service knows; may be nil.
	report func(*Status)
	// closeIdle closes idle connections to other services, one function for each of them.
	closeIdle []func()
	// period of a status line that nobody asked for; 0 for none.
	period time.Duration
}

// serviceFlags are the flags of every service; each reads those that it needs.
type serviceFlags struct {
	listen, controlFile                     string
	target, catalogue, cart, payment, redis string
	rate                                    float64
	seed                                    uint64
}

// roles builds the services by name.
var roles = map[string]func(serviceFlags, *ledger) *role{
	"load": newLoad, "gateway": newGateway, "catalogue": newCatalogue,
	"cart": newCart, "payment": newPayment, "worker": newWorker,
}

// RunService runs one service of the shop in this process until ctx ends or SIGTERM arrives:
// args is the role and its flags, as in "payment", "--listen", ":8080". It is what the
// launcher starts in each container. The role "enter" is the launcher's own helper.
func RunService(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("demo service: which one? load, gateway, catalogue, cart, payment or worker")
	}
	if args[0] == enterRole {
		return enter(args[1:])
	}
	build, ok := roles[args[0]]
	if !ok {
		return fmt.Errorf("demo service %q: not one of load, gateway, catalogue, cart, payment, worker", args[0])
	}
	f, err := parseServiceFlags(args[0], args[1:])
	if err != nil {
		return err
	}
	l := newLedger()
	s := &service{name: args[0], flags: f, ledger: l, role: build(f, l), out: os.Stdout}
	return s.run(ctx)
}

func parseServiceFlags(name string, args []string) (serviceFlags, error) {
	var f serviceFlags
	set := flag.NewFlagSet("demo-service "+name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&f.listen, "listen", ":8080", "address to serve at")
	set.StringVar(&f.controlFile, "control", "", "file with what to do, read at SIGHUP")
	set.StringVar(&f.target, "target", "", "front door, for the load generator")
	set.StringVar(&f.catalogue, "catalogue", "", "address of the catalogue")
	set.StringVar(&f.cart, "cart", "", "address of the cart")
	set.StringVar(&f.payment, "payment", "", "address of payment")
	set.StringVar(&f.redis, "redis", "", "address of Redis; empty for none")
	set.Float64Var(&f.rate, "rate", defaultRate, "requests per second")
	set.Uint64Var(&f.seed, "seed", 1, "seed of everything random")
	if err := set.Parse(args); err != nil {
		return f, fmt.Errorf("demo service %s: %w", name, err)
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("demo service %s: unexpected %q", name, strings.Join(set.Args(), " "))
	}
	return f, nil
}

// service is a running role.
type service struct {
	name   string
	flags  serviceFlags
	ledger *ledger
	role   *role

	mu       sync.Mutex // guards out and revision
	out      io.Writer
	revision int
}

func (s *service) run(ctx context.Context) error {
	// A first process of a pid namespace gets no signal that it has not asked for.
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	stop := func() {}
	var work sync.WaitGroup
	if s.role.handler != nil {
		var err error
		if stop, err = s.serve(&work); err != nil {
			return err
		}
	}
	if s.role.run != nil {
		work.Go(func() { s.role.run(ctx) })
	}
	s.print() // the launcher takes the first line as: ready
	s.follow(ctx, hangup)
	stop()
	work.Wait()
	s.print()
	return nil
}

// serve listens and answers until the returned function is called.
func (s *service) serve(work *sync.WaitGroup) (stop func(), err error) {
	listener, err := net.Listen("tcp4", s.flags.listen)
	if err != nil {
		return nil, fmt.Errorf("demo service %s: %w", s.name, err)
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(s.count),
		ReadHeaderTimeout: callTimeout,
		MaxHeaderBytes:    16 << 10,
		// No IdleTimeout: a server that closes first can lose a request to the race.
	}
	work.Go(func() { server.Serve(countedListener{listener, s.ledger}) })
	return func() { server.Close() }, nil
}

func (s *service) count(w http.ResponseWriter, r *http.Request) {
	s.ledger.caller(hostOf(r.RemoteAddr)).requests.Add(1)
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	s.role.handler.ServeHTTP(w, r)
}

// follow carries out controls and writes status lines until ctx ends.
func (s *service) follow(ctx context.Context, hangup <-chan os.Signal) {
	var tick <-chan time.Time
	if s.role.period > 0 {
		ticker := time.NewTicker(s.role.period)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			s.print()
		case <-hangup:
			if err := s.obey(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
}

func (s *service) obey() error {
	b, err := os.ReadFile(s.flags.controlFile)
	if err != nil {
		return fmt.Errorf("demo service %s: reading what to do: %w", s.name, err)
	}
	var c control
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("demo service %s: reading what to do from %q: %w", s.name, s.flags.controlFile, err)
	}
	if s.role.apply != nil {
		s.role.apply(c)
	}
	if c.CloseIdle {
		for _, f := range s.role.closeIdle {
			f()
		}
	}
	s.mu.Lock()
	s.revision = c.Revision
	s.mu.Unlock()
	s.print()
	return nil
}

func (s *service) print() {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Role: s.name, Revision: s.revision}
	st.Calls, st.Callers = s.ledger.counts()
	if s.role.report != nil {
		s.role.report(&st)
	}
	if err := json.NewEncoder(s.out).Encode(st); err != nil {
		fmt.Fprintf(os.Stderr, "demo service %s: writing status: %v\n", s.name, err)
	}
}
