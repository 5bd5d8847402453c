package container

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"outsight/internal/model"
)

const (
	// dockerTimeout bounds a request. An inspect waits inside of Docker until the container's
	// start is done, about a quarter of a second on an idle host.
	dockerTimeout = 5 * time.Second
	// dockerAnswer bounds the bytes of an answer, dockerEvent those of one event.
	dockerAnswer = 16 << 20
	dockerEvent  = 1 << 20
)

var errNoSuchContainer = errors.New("no such container")

// docker is a client for the endpoints of the Engine API that are needed here.
type docker struct {
	socket string
	http   *http.Client
	// retry cuts the pause after a lost connection short.
	retry chan struct{}

	mu  sync.Mutex // guards err
	err error      // why Docker does not answer, nil while it does
}

func newDocker(socket string) *docker {
	var dialer net.Dialer
	return &docker{
		socket: socket,
		retry:  make(chan struct{}, 1),
		err:    errors.New("not tried yet"),
		http: &http.Client{Transport: &http.Transport{
			DisableCompression: true,
			MaxIdleConns:       inspectors + 1,
			IdleConnTimeout:    30 * time.Second,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			},
		}},
	}
}

// dockerSummary is an element of /containers/json.
type dockerSummary struct {
	ID     string `json:"Id"`
	Names  []string
	Image  string
	Labels map[string]string
	Mounts []dockerMount
}

// dockerMount is what a container has of its host. A driver other than local keeps its data elsewhere.
type dockerMount struct{ Type, Name, Source, Destination, Driver string }

// dockerDetails is the answer of /containers/{id}/json.
type dockerDetails struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Pid       int
		StartedAt time.Time
	}
	Config struct {
		Image  string
		Labels map[string]string
	}
	Mounts []dockerMount
}

// dockerInfo is the answer of /info: the labels of the host that the daemon was started with.
type dockerInfo struct{ Labels []string }

// dockerMessage is a message of /events. Network messages name the container in Attributes.
type dockerMessage struct {
	Type, Action string
	Actor        struct {
		ID         string
		Attributes map[string]string
	}
}

func (e *dockerMessage) container() string {
	if e.Type == "network" {
		return e.Actor.Attributes["container"]
	}
	return e.Actor.ID
}

// list returns the running containers, or the one with the id in any state. Unlike inspect it
// answers at once while a container is being started.
func (d *docker) list(ctx context.Context, id string) ([]dockerSummary, error) {
	query := url.Values{}
	if id != "" {
		query.Set("all", "1")
		query.Set("filters", filters(map[string][]string{"id": {id}}))
	}
	var list []dockerSummary
	return list, d.get(ctx, "/containers/json", query, &list)
}

func (d *docker) details(ctx context.Context, id string) (dockerDetails, error) {
	var details dockerDetails
	return details, d.get(ctx, "/containers/"+url.PathEscape(id)+"/json", nil, &details)
}

func (d *docker) info(ctx context.Context) (info dockerInfo, err error) {
	return info, d.get(ctx, "/info", nil, &info)
}

// watch reads events until the stream ends, which is always an error. connected is called once
// the stream is open: what happens from then on is in it. An error of connected ends it too.
func (d *docker) watch(ctx context.Context, connected func() error, event func(dockerMessage)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Only the header of the answer is bounded in time: an event may be hours away.
	slow := time.AfterFunc(dockerTimeout, cancel)
	response, err := d.do(ctx, "/events", url.Values{"filters": {filters(map[string][]string{
		"type":  {"container", "network"},
		"event": {"start", "rename", "connect", "disconnect"},
	})}})
	if !slow.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := connected(); err != nil {
		return err
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, dockerEvent)
	for lines.Scan() {
		var message dockerMessage
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			return fmt.Errorf("decoding a docker event: %w", err)
		}
		event(message)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading docker events: %w", err)
	}
	return io.ErrUnexpectedEOF
}

func filters(values map[string][]string) string {
	text, _ := json.Marshal(values) // a map of strings has no way to fail
	return string(text)
}

// get asks a question and remembers whether Docker answers in time.
func (d *docker) get(ctx context.Context, path string, query url.Values, into any) error {
	err := d.ask(ctx, path, query, into)
	if err == nil || ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		d.setState(err)
	}
	return err
}

func (d *docker) ask(ctx context.Context, path string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, dockerTimeout)
	defer cancel()
	response, err := d.do(ctx, path, query)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body := &io.LimitedReader{R: response.Body, N: dockerAnswer}
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("decoding the answer of docker to %q: %w", path, err)
	}
	return nil
}

func (d *docker) do(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	address := url.URL{Scheme: "http", Host: "docker", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking docker for %q: %w", path, err)
	}
	response, err := d.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking docker at %q for %q: %w", d.socket, path, err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		return response, nil
	case http.StatusNotFound:
		err = errNoSuchContainer
	default:
		text, _ := io.ReadAll(io.LimitReader(response.Body, 256))
		err = fmt.Errorf("status %d: %s", response.StatusCode, strings.TrimSpace(string(text)))
	}
	response.Body.Close()
	return nil, fmt.Errorf("asking docker at %q for %q: %w", d.socket, path, err)
}

func (d *docker) setState(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *docker) connected() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err == nil
}

func (d *docker) feature() model.Feature {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := model.Feature{Name: "docker", Purpose: "names, images and labels of Docker containers", State: model.FeatureWorks}
	if d.err == nil {
		return f
	}
	f.State, f.Reason = model.FeatureAbsent, d.err.Error()
	switch {
	case errors.Is(d.err, os.ErrNotExist):
		f.Reason = fmt.Sprintf("no socket at %s", d.socket)
		f.Remedy = "nothing where Docker is not used; else start it, or name its socket; containers are known by their ids"
	case errors.Is(d.err, os.ErrPermission):
		f.Remedy = "run as root or as a member of the docker group"
	case errors.Is(d.err, syscall.ECONNREFUSED):
		f.Remedy = "start Docker: its socket is there, but nobody listens"
	default:
		f.Remedy = "it is tried again; containers are known by their ids until Docker answers"
	}
	return f
}
