package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"outsight/internal/access"
	"outsight/internal/agent"
	"outsight/internal/control"
	"outsight/internal/frame"
	"outsight/internal/ingest"
	"outsight/internal/kubernetes"
	"outsight/internal/pull"
	"outsight/internal/queue"
	"outsight/internal/quota"
	"outsight/internal/store"
)

// receiveFlags say how a server takes metrics.
type receiveFlags struct {
	// grpc and http are the addresses; empty for none.
	grpc, http string
	nats       queue.Server
	natsFile   string
	stream     string
	replicas   int
	queueBytes int64
	// inFlight bounds the bytes of requests that are worked on.
	inFlight int64
	header   tenantHeader
	// quotaFile has limits of tenants, which quotas are then.
	quotaFile string
	quotas    quota.Table
}

const (
	defaultOTLP     = "127.0.0.1:4317"
	defaultOTLPHTTP = "127.0.0.1:4318"
	// asideBytes bounds the messages that cannot be stored and were set aside.
	asideBytes = 64 << 20
	// framesStream is behind the name of the stream of frames.
	framesStream = "-FRAMES"
	// queueRoom is what the embedded queue may take on top of its messages.
	queueRoom = 16 << 20
)

func (f *receiveFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.grpc, "otlp", defaultOTLP, "address where OTLP comes by gRPC; empty for none")
	c.Flags().StringVar(&f.http, "otlp-http", defaultOTLPHTTP,
		"address where OTLP comes by HTTP, from agents and others; empty for none")
	c.Flags().StringVar(&f.nats.URL, "nats", "",
		"URLs of a NATS cluster with JetStream that keeps what comes until it is stored (default: in this process)")
	c.Flags().StringVar(&f.natsFile, "nats-file", "",
		"file of these URLs on one line, where there is a password in them: all users of a host see arguments")
	c.Flags().StringVar(&f.nats.Credentials, "nats-creds", "",
		"file of the credentials to show there; a user and password, or a token, may be in the URLs of --nats-file instead")
	c.Flags().StringVar(&f.nats.CA, "nats-ca", "",
		"file of certificates that must have signed the cluster's (default: the system's)")
	c.Flags().StringVar(&f.nats.Cert, "nats-cert", "", "file of the certificate to show there")
	c.Flags().StringVar(&f.nats.Key, "nats-key", "", "file of its key")
	c.Flags().StringVar(&f.stream, "nats-stream", "OUTSIGHT", "name of the stream there, and with -FRAMES behind it that of frames; each server needs its own")
	c.Flags().IntVar(&f.replicas, "nats-replicas", 0, "copies of the stream there (default: as many as it has, or 1)")
	c.Flags().Int64Var(&f.queueBytes, "queue-bytes", 1<<30,
		"bytes of frames that may wait to be stored, and as many of OTLP; senders are asked to wait when they are full")
	c.Flags().Int64Var(&f.inFlight, "in-flight-bytes", 256<<20,
		"bytes of requests that are worked on; of them, the largest request's are a reserve that tenants use in turn")
	c.Flags().StringVar((*string)(&f.header), "tenant-header", string(headerOff),
		"who sends and who reads names its tenant by the header X-Outsight-Tenant or X-Scope-OrgID: optional (without a "+
			"value), required or off")
	c.Flags().StringVar(&f.quotaFile, "tenant-quotas", "",
		"YAML file of limits of tenants below their shares, as in \"shop: {series: 50000, label_bytes: 60000000, "+
			"samples_per_second: 20000, in_flight_bytes: 8000000, query_share: 0.3}\"; \"*\" is every other")
	c.Flags().Lookup("tenant-header").NoOptDefVal = string(headerOptional)
}

func (f *receiveFlags) check() (err error) {
	if err := f.readNATS(); err != nil {
		return err
	}
	if f.inFlight < ingest.LeastInFlight {
		return usagef("--in-flight-bytes is %d, want at least %d: the largest request takes half of that", f.inFlight,
			ingest.LeastInFlight)
	}
	if f.quotaFile != "" {
		if f.quotas, err = quota.Read(f.quotaFile); err != nil {
			return fmt.Errorf("--tenant-quotas: %w", err)
		}
	}
	return oneOf("tenant-header", string(f.header), string(headerOptional), string(headerRequired), string(headerOff))
}

// readNATS finds out where the cluster is, and that no password of it stands among the arguments.
func (f *receiveFlags) readNATS() (err error) {
	for text := range strings.SplitSeq(f.nats.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(text)); strings.Contains(text, "@") || err == nil && u.User != nil {
			return usagef("--nats has a password or a token, which all users of this host can see: write the URLs to a file, " +
				"and give --nats-file")
		}
	}
	if f.natsFile != "" {
		if f.nats.URL != "" {
			return usagef("--nats and --nats-file: want one of them")
		}
		if f.nats.URL, err = secretIn("nats-file", f.natsFile); err != nil {
			return err
		}
	}
	if err := access.CheckSecretFile(f.nats.Credentials); err != nil {
		return fmt.Errorf("reading --nats-creds: %w", err)
	}
	return nil
}

// any is whether anything is received, and asked whether the user said so.
func (f *receiveFlags) any() bool { return f.grpc != "" || f.http != "" }

func asked(c *cobra.Command) bool {
	for _, name := range []string{"otlp", "otlp-http", "nats", "nats-file", "pull", "pull-file"} {
		if c.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// named is whether tenants are named in headers.
func (f *receiveFlags) named() bool { return f.header == headerOptional || f.header == headerRequired }

// tenants are those among whom the store is divided, nil where there are none.
func (f *receiveFlags) tenants(a access.Access) *quota.Tenants {
	names := a.Auth.Tenants()
	if !f.any() || !f.named() && len(names) == 0 {
		return nil
	}
	return &quota.Tenants{Names: names, Open: len(names) == 0}
}

func (f *receiveFlags) addresses() (all []string) {
	for _, a := range []string{f.grpc, f.http} {
		if a != "" {
			all = append(all, a)
		}
	}
	return all
}

// receiver is everything that takes metrics in.
type receiver struct {
	flags      receiveFlags
	access     access.Access
	listeners  *access.Listeners
	grpc, http net.Listener
	embedded   *ingest.Embedded
	conn       *nats.Conn
	// queues are those of OTLP and of frames.
	queues [2]*queue.Queue
	ingest *ingest.Ingest
	// control says what agents measure; nil where nothing is measured.
	control *control.Server
	// pull reads hosts; nil where none is to be read.
	pull *pull.Pull
	// cluster puts names to what comes; nil where there is none.
	cluster *kubernetes.Cluster
	// named is closed when it is known, or is waited for no longer.
	named chan struct{}
	// room is why the disk has none for more, or nil.
	room func() error
	log  *slog.Logger
}

// openReceiver opens the queue in the directory data, and the addresses. Of so many series it remembers the labels, in
// half of what they may take in the store.
func openReceiver(ctx context.Context, f receiveFlags, a access.Access, listeners *access.Listeners, data string,
	series int, labelBytes int64,
	kept anyStore, frames *ingest.Frames, cluster *kubernetes.Cluster, futureIsWrong chan<- struct{}, log *slog.Logger) (r *receiver, err error) {
	r = &receiver{flags: f, access: a, listeners: listeners, cluster: cluster, named: make(chan struct{}),
		room: roomOf(kept), log: log}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	switch n := f.nats; {
	case f.queueBytes < 1<<20:
		return r, usagef("--queue-bytes is %d, want at least %d", f.queueBytes, 1<<20)
	case n.URL == "" && (n != queue.Server{} || f.replicas != 0):
		return r, usagef("--nats-creds, --nats-ca, --nats-cert, --nats-key and --nats-replicas are of the cluster that " +
			"--nats names, and there is none")
	case (n.Cert == "") != (n.Key == ""):
		return r, usagef("--nats-cert and --nats-key: want both or neither")
	}
	if f.grpc != "" {
		if r.grpc, err = listen(f.grpc); err != nil {
			return r, receiveError{"otlp", err}
		}
		r.grpc = a.Secure(listeners.Limit(r.grpc, "otlp-grpc", access.SenderLimits))
	}
	if f.http != "" {
		if r.http, err = listen(f.http); err != nil {
			return r, receiveError{"otlp-http", err}
		}
		// TLS comes last: net/http talks HTTP/2 on connections alone that it knows to be TLS.
		r.http = a.Secure(listeners.Limit(r.http, "otlp-http", access.SenderLimits))
	}
	dir := filepath.Join(data, "queue")
	if f.nats.URL != "" {
		if r.conn, err = queue.Connect(f.nats, log); err != nil {
			return r, fmt.Errorf("--nats: %w", err)
		}
	} else {
		if r.embedded, err = ingest.Embed(dir, 2*(f.queueBytes+asideBytes+queueRoom), log); err != nil {
			return r, err
		}
		if r.conn, err = r.embedded.Connect(); err != nil {
			return r, err
		}
	}
	opening, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for n, name := range []string{f.stream, f.stream + framesStream} {
		if r.queues[n], err = queue.Open(opening, r.conn, queue.Options{Stream: name, Replicas: f.replicas,
			MaxBytes: f.queueBytes, MaxDeadLetterBytes: asideBytes, Logger: log}); err != nil {
			return r, err
		}
	}
	frames.Queue = r.queues[1]
	o := ingest.Options{
		Limits: ingest.Limits{Remembered: series, RememberedBytes: labelBytes / 2}, InFlight: f.inFlight, Quotas: f.quotas,
		Tenants: f.named() || len(a.Auth.Tenants()) > 0, TenantRequired: f.header == headerRequired,
		TenantNames: a.Auth.Tenants(), Frames: frames, Logger: log,
	}
	if r.embedded != nil {
		o.Dir, o.Repaired, o.Room = dir, r.embedded.Repaired(), roomOf(kept)
	}
	if local, ok := kept.(*store.Store); ok {
		o.FutureIsWrong = func() { setFutureAside(local, futureIsWrong, log) }
	}
	if a.Auth != nil {
		o.Auth = access.Senders{Authenticator: a.Auth}
	}
	if cluster != nil {
		o.Name, o.Named = cluster.Name, r.named
	}
	r.ingest, err = ingest.New(r.queues[0], kept, o)
	return r, err
}

// setFutureAside has the store opened again without what is of the future.
func setFutureAside(kept *store.Store, reopen chan<- struct{}, log *slog.Logger) {
	if err := kept.SetFutureAside(); err != nil {
		log.Error("samples of the future stay in the store", "error", err)
		return
	}
	select {
	case reopen <- struct{}{}:
	default: // it is under way
	}
}

// receiveError names the flag of an address that cannot be had.
type receiveError struct {
	flag string
	error
}

func (e receiveError) Unwrap() error { return e.error }

// run takes metrics until ctx ends: first nothing more comes, then the queue's reader stops. What waits by then is
// stored after the next start.
func (r *receiver) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if r.http != nil {
		group.Go(func() error { return agent.ServeHTTP(ctx, r.http, r.access.Senders(r.withControl()), r.log) })
		if r.control != nil {
			group.Go(func() error { return r.control.Run(ctx) })
		}
	}
	if r.grpc != nil {
		group.Go(func() error { return r.ingest.ServeGRPC(ctx, r.grpc) })
	}
	if r.cluster != nil {
		group.Go(func() error {
			r.awaitNames(ctx)
			return nil
		})
	}
	if r.pull != nil {
		group.Go(func() error { return r.pull.Run(ctx) })
	}
	group.Go(func() error { return r.ingest.Run(ctx) })
	return group.Wait()
}

// namesPatience is how long agents wait for their answers until those of Kubernetes are there for the first time.
const namesPatience = 15 * time.Second

// awaitNames waits until the cluster is known: a series that begins without a name and goes on with one is two.
func (r *receiver) awaitNames(ctx context.Context) {
	defer close(r.named)
	select {
	case <-ctx.Done():
	case <-r.cluster.Synced():
	case <-time.After(namesPatience):
		r.log.Warn("what comes is stored without names of pods: Kubernetes does not answer", "waited", namesPatience)
	}
}

// describe reports where metrics come in, for people.
func (r *receiver) describe() (lines []string) {
	scheme := r.access.Scheme()
	if r.http != nil {
		lines = append(lines, fmt.Sprintf("  frames   %s://%s%s (outsight agent --server %s://%s)", scheme, r.http.Addr(),
			frame.Path, scheme, r.http.Addr()), fmt.Sprintf("  OTLP     %s://%s%s", scheme, r.http.Addr(), ingest.Path))
	}
	if r.grpc != nil {
		lines = append(lines, fmt.Sprintf("  OTLP     %s (gRPC)", r.grpc.Addr()))
	}
	return lines
}

// ready is why nothing can be taken, or nil.
func (r *receiver) ready() error {
	if !r.conn.IsConnected() {
		return errors.New("the queue is away")
	}
	return r.room()
}

// roomOf is whether there is room on the disk of a store; that of a remote one is its own matter.
func roomOf(kept anyStore) func() error {
	if local, ok := kept.(*store.Store); ok {
		return local.CanStore
	}
	return func() error { return nil }
}

// metrics are those of what comes in, of readers that were refused, and of the listeners.
func (r *receiver) metrics() http.Handler {
	own := r.ingest.Metrics()
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		own.ServeHTTP(w, q)
		fmt.Fprintf(w, "# HELP outsight_api_refused_requests_total Requests of readers without a valid token\n"+
			"# TYPE outsight_api_refused_requests_total counter\noutsight_api_refused_requests_total %d\n",
			r.access.Auth.RefusedReaders())
		fmt.Fprint(w, "# HELP outsight_access_refused_requests_total Requests that were refused before any handler: "+
			"without a token that may, by a foreign name, or of a foreign page\n"+
			"# TYPE outsight_access_refused_requests_total counter\n")
		for _, refused := range r.access.Refusals() {
			fmt.Fprintf(w, "outsight_access_refused_requests_total{reason=%q} %d\n", refused.Reason, refused.Count)
		}
		fmt.Fprint(w, "# HELP outsight_listener_dropped_connections_total Connections that were closed because there were "+
			"too many, or because nobody read the answer\n"+
			"# TYPE outsight_listener_dropped_connections_total counter\n")
		for _, d := range r.listeners.Drops() {
			fmt.Fprintf(w, "outsight_listener_dropped_connections_total{bound=%q} %d\n", d.Name, d.Count)
		}
		if r.pull != nil {
			_ = r.pull.WriteMetrics(w) // who asked has gone
		}
	})
}

func (r *receiver) close() {
	for _, l := range []net.Listener{r.grpc, r.http} {
		if l != nil {
			l.Close()
		}
	}
	if r.conn != nil {
		r.conn.Close()
	}
	if r.embedded != nil {
		if err := r.embedded.Close(); err != nil {
			r.log.Error("ending the queue was not clean", "error", err)
		}
	}
}
