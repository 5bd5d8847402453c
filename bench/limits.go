package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"outsight/bench/traffic"
	outsight "outsight/internal/agent"
	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/predict"
)

const (
	// limitLook is how long an application is watched at a rate, in so many stretches, and limitStep how much more than the
	// last one the next rate is.
	limitLook, limitStretches = 12 * time.Second, 4
	limitStep                 = 1.25
	limitConnections          = 64
	// limitLength bounds the measurement of one application.
	limitLength = 8 * time.Minute
)

// limitedApp is an application of several containers of which the limit is known to be something.
type limitedApp struct {
	name string
	// first is the first rate of requests, byCPU whether CPU time or a quota is the limit.
	first float64
	byCPU bool
	start func(*appStage) (url string, err error)
}

// limitedApps have other bottlenecks than the demo shop.
var limitedApps = []limitedApp{
	{name: "nginx, a worker with a quota, Redis", first: 8, byCPU: true, start: func(s *appStage) (string, error) {
		redis, err := s.run("redis", nil, "/usr/bin/redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "")
		if err != nil {
			return "", err
		}
		worker, err := s.run("worker", []string{"--cpus", "0.3"}, "/apps", "work", redis+":6379", "4000")
		if err != nil {
			return "", err
		}
		configuration := fmt.Sprintf(`daemon off; user root; worker_processes 1; pid /tmp/pid; error_log stderr warn;
events { worker_connections 1000; }
http {
	access_log off; keepalive_requests 100000000; client_body_temp_path /tmp/body; proxy_temp_path /tmp/proxy;
	fastcgi_temp_path /tmp/fastcgi; uwsgi_temp_path /tmp/uwsgi; scgi_temp_path /tmp/scgi;
	upstream worker { server %s:8080; keepalive %d; }
	server { listen 8080; location / { proxy_pass http://worker; proxy_http_version 1.1; proxy_set_header Connection ""; } }
}`, worker, limitConnections)
		if err := os.WriteFile(filepath.Join(s.directory, "nginx.conf"), []byte(configuration), 0o644); err != nil {
			return "", err
		}
		front, err := s.run("front", []string{"-v", s.directory + ":/etc/app:ro"}, "/usr/sbin/nginx", "-c", "/etc/app/nginx.conf")
		return "http://" + front + ":8080/", err
	}},
	{name: "a pool of 4 connections to PostgreSQL", first: 12, start: func(s *appStage) (string, error) {
		const programs = "/usr/lib/postgresql/15/bin/"
		data := filepath.Join(s.directory, "data")
		const nobody = 65534
		if err := errors.Join(os.Mkdir(data, 0o700), os.Chown(data, nobody, nobody)); err != nil {
			return "", err
		}
		user := []string{"--user", fmt.Sprint(nobody), "-v", data + ":/data"}
		if _, err := s.docker(append(append([]string{"run", "--rm"}, s.mounts(user)...), s.name, programs+"initdb", "-D", "/data",
			"-U", "postgres", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")...); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte("host all all all trust\n"), 0o644); err != nil {
			return "", err
		}
		database, err := s.run("db", user, programs+"postgres", "-D", "/data", "-c", "listen_addresses=*",
			"-c", "unix_socket_directories=/tmp", "-c", "fsync=off", "-c", "jit=off", "-c", "autovacuum=off")
		if err != nil {
			return "", err
		}
		front, err := s.run("front", nil, "/apps", "pool", database+":5432", "4")
		return "http://" + front + ":8080/", err
	}},
}

// measureLimits raises the load of applications whose limits are not alike, and compares what is told of the limit at 15
// to 33 % of it with where it is.
func measureLimits(ctx context.Context, _ options) (rows []row, err error) {
	host, stop, err := watch(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	for i := range limitedApps {
		more, err := limitedApps[i].measure(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", limitedApps[i].name, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// toldLimit is what was told at a rate.
type toldLimit struct {
	served float64
	*predict.Prediction
}

func (a *limitedApp) measure(ctx context.Context, host *outsight.Host) (rows []row, err error) {
	ctx, stop := context.WithTimeout(ctx, limitLength)
	defer stop()
	s, err := newAppStage(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	url, err := a.start(s)
	if err != nil {
		return nil, err
	}
	if err := answers(ctx, url); err != nil {
		return nil, err
	}
	var history predict.History
	var told []toldLimit
	greatest := 0.0
	for rate := a.first; ; rate *= limitStep {
		served, err := a.look(ctx, host, s, url, rate, &history)
		if err != nil {
			return nil, err
		}
		greatest = max(greatest, served)
		p, err := history.Predict(predict.Scenario{Times: 1})
		if err != nil {
			return nil, err
		}
		told = append(told, toldLimit{served, p})
		progress("%s: asked for %.0f/s, served %.0f/s; %s", a.name, rate, served, limitSaid(p))
		if served < saturated*rate {
			break
		}
	}
	for _, t := range told {
		if share := t.served / greatest; share >= 0.15 && share <= 0.7 && t.Limit != nil {
			rows = append(rows, a.row(&t, greatest))
		}
	}
	return rows, nil
}

// row compares what was told with where the limit is. Where it is not CPU time, a narrow interval is wrong.
func (a *limitedApp) row(t *toldLimit, greatest float64) row {
	share := 100 * t.served / greatest
	r := row{what: fmt.Sprintf("%s: told at %.0f %% of the limit", a.name, share), unit: "% off",
		value: 100 * math.Abs(t.Limit.Value/greatest-1), detail: fmt.Sprintf("%s; it is %.0f/s", limitSaid(t.Prediction), greatest)}
	if a.byCPU {
		if share <= 33 {
			r.budget = saturationBudget
		}
		return r
	}
	for i := range t.Pools {
		if pool := &t.Pools[i]; pool.Limit != nil && pool.Limit.Value < t.Limit.Value {
			r.value = 100 * math.Abs(pool.Limit.Value/greatest-1)
			r.detail += fmt.Sprintf(", by %.0f connections of %s %.0f/s (fixed: %v)", pool.Open, pool.Name, pool.Limit.Value, pool.Fixed)
			break
		}
	}
	return r
}

// limitSaid is what is told of the limit.
func limitSaid(p *predict.Prediction) string {
	if p.Limit == nil {
		return "no limit is told"
	}
	high := math.Inf(1)
	if p.Limit.High != nil {
		high = *p.Limit.High
	}
	by := p.LimitedBy
	for i := range p.Resources {
		if p.Resources[i].Node == by {
			by = p.Resources[i].Name
		}
	}
	text := fmt.Sprintf("%.0f/s (%.0f to %.0f) by %s", p.Limit.Value, p.Limit.Low, high, by)
	if len(p.Doubts) > 0 {
		text += fmt.Sprintf(", with %d doubts", len(p.Doubts))
	}
	return text
}

// look asks at a rate and adds what is seen meanwhile to the history. It answers how many requests were served a second.
func (a *limitedApp) look(ctx context.Context, host *outsight.Host, s *appStage, url string, rate float64,
	history *predict.History) (served float64, err error) {
	const settle = 2 * time.Second
	// It ends when all has been seen.
	pace := traffic.Pace{Rate: rate, Connections: min(int(rate), limitConnections), Duration: limitLength}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	var answered atomic.Uint64
	go func() {
		_, err := pace.Run(asking, func(context.Context) (traffic.Asker, error) { return newPageAsker(url, &answered), nil })
		if asking.Err() != nil {
			err = ctx.Err()
		}
		done <- err
	}()
	end := func(err error) error {
		stop()
		return errors.Join(err, <-done)
	}
	if err := wait(ctx, settle); err != nil {
		return 0, end(err)
	}
	last := newFrame(ctx, host)
	begin, before := time.Now(), answered.Load()
	for range limitStretches {
		if err := wait(ctx, limitLook/limitStretches); err != nil {
			return 0, end(err)
		}
		now := newFrame(ctx, host)
		if now == nil || last == nil {
			return 0, end(ctx.Err())
		}
		g := graph.FromFrames(&frame.Window{From: last.Time, To: now.Time, Hosts: []frame.HostSpans{{Host: now.Host,
			Spans: []frame.Span{{Before: last, After: now}}}}}, graph.Options{})
		s.only(g)
		cores := map[string]float64{now.Host: float64(runtime.NumCPU())}
		history.Add(g.Analyse(cores), cores, nil)
		last = now
	}
	served = float64(answered.Load()-before) / time.Since(begin).Seconds()
	return served, end(nil)
}

// newFrame waits for the next one; nil where ctx ends.
func newFrame(ctx context.Context, host *outsight.Host) *frame.Frame {
	last := host.Frame()
	for host.Frame() == last {
		if wait(ctx, 5*time.Millisecond) != nil {
			return nil
		}
	}
	return host.Frame()
}

// pageAsker asks for a page over a connection of its own.
type pageAsker struct {
	client *http.Client
	url    string
	// answered counts the requests that were.
	answered *atomic.Uint64
}

func newPageAsker(url string, answered *atomic.Uint64) *pageAsker {
	return &pageAsker{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}, url, answered}
}

func (a *pageAsker) Ask() error {
	r, err := a.client.Get(a.url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", r.StatusCode)
	}
	a.answered.Add(1)
	return nil
}

func (a *pageAsker) Close() error {
	a.client.CloseIdleConnections()
	return nil
}

// answers waits until a page is there.
func answers(ctx context.Context, url string) error {
	a := newPageAsker(url, new(atomic.Uint64))
	defer a.Close()
	var err error
	for range 100 {
		if err = a.Ask(); err == nil {
			return nil
		}
		if wait(ctx, 200*time.Millisecond) != nil {
			break
		}
	}
	return fmt.Errorf("asking for %s: %w", url, err)
}

// appStage runs the containers of an application, in a network of their own. Their programs are this host's.
type appStage struct {
	ctx       context.Context
	name      string
	directory string
}

func newAppStage(ctx context.Context) (*appStage, error) {
	directory, err := os.MkdirTemp("", "outsight-bench-")
	if err != nil {
		return nil, err
	}
	s := &appStage{ctx, fmt.Sprintf("outsight-bench-%d-app", os.Getpid()), directory}
	if err = os.Chmod(directory, 0o755); err == nil {
		err = s.image()
	}
	if err == nil {
		_, err = s.docker("network", "create", s.name)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// image makes one of our program, and of places for the host's.
func (s *appStage) image() error {
	binary := filepath.Join(s.directory, "apps")
	build := exec.CommandContext(s.ctx, "go", "build", "-o", binary, "outsight/bench/apps")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program of applications: %w: %s", err, output)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, d := range []string{"usr", "etc", "tmp", "data"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o777}))
	}
	for _, l := range []string{"bin", "lib", "lib64"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: l, Typeflag: tar.TypeSymlink, Linkname: "usr/" + l}))
	}
	err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "apps", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}))
	if err == nil {
		_, err = w.Write(program)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return importImage(s.ctx, s.name, &archive)
}

func (s *appStage) docker(arguments ...string) (string, error) {
	text, err := output(s.ctx, "docker", arguments...)
	return strings.TrimSpace(string(text)), err
}

// mounts are the arguments by which a container has the host's programs and libraries.
func (s *appStage) mounts(more []string) []string {
	return append([]string{"--label", benchLabel, "-v", "/usr:/usr:ro", "-v", "/etc/passwd:/etc/passwd:ro", "-v",
		"/etc/group:/etc/group:ro", "-e", "LC_ALL=C"}, more...)
}

// run starts a container and answers its address.
func (s *appStage) run(name string, more []string, command ...string) (address string, err error) {
	arguments := append([]string{"run", "-d", "--network", s.name, "--name", s.name + "-" + name}, s.mounts(more)...)
	if _, err := s.docker(append(append(arguments, s.name), command...)...); err != nil {
		return "", err
	}
	return s.docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", s.name+"-"+name)
}

// only leaves the edges of the application's containers.
func (s *appStage) only(g *graph.Graph) {
	ours := map[string]bool{}
	for _, n := range g.Nodes {
		ours[n.ID] = strings.HasPrefix(n.Name, s.name)
	}
	edges := g.Edges[:0]
	for _, e := range g.Edges {
		if ours[e.Client] || ours[e.Server] {
			edges = append(edges, e)
		}
	}
	g.Edges = edges
}

// close removes the containers, their image and network.
func (s *appStage) close() error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(s.ctx), time.Minute)
	defer stop()
	s.ctx = ctx
	ids, err := s.docker("ps", "-aq", "--filter", "name=^"+s.name+"-")
	if ids != "" {
		_, removing := s.docker(append([]string{"rm", "-f"}, strings.Fields(ids)...)...)
		err = errors.Join(err, removing)
	}
	if networks, _ := s.docker("network", "ls", "-q", "--filter", "name=^"+s.name+"$"); networks != "" {
		_, removing := s.docker("network", "rm", networks)
		err = errors.Join(err, removing)
	}
	if images, _ := s.docker("images", "-q", s.name); images != "" {
		_, removing := s.docker("rmi", "-f", images)
		err = errors.Join(err, removing)
	}
	return errors.Join(err, os.RemoveAll(s.directory))
}
