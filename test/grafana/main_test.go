// Package grafana lets Grafana's own Prometheus data source ask a server of ours.
package grafana

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/store"
	"outsight/test/deploy"
)

// build builds a program in a directory of one of the modules.
func build(t *testing.T, directory string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "program")
	command := exec.Command("go", "build", "-o", program, ".")
	command.Dir = directory
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", directory, err, out)
	}
	return program
}

var address = regexp.MustCompile(`https?://\S+`)

// start starts a program that ends with the test: with its input, or by an interrupt where it has none. It answers the
// first address that the program prints.
func start(t *testing.T, input string, program string, arguments ...string) string {
	t.Helper()
	command := exec.Command(program, arguments...)
	var problems bytes.Buffer
	command.Stderr = &problems
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	read := make(chan struct{})
	t.Cleanup(func() {
		stdin.Close()
		if input == "" {
			command.Process.Signal(os.Interrupt)
		}
		<-read
		if err := command.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", arguments, err, problems.String())
		}
	})
	if _, err := io.WriteString(stdin, input); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		if found := address.FindString(lines.Text()); found != "" {
			go func() {
				defer close(read)
				for lines.Scan() { // or it would wait for us
				}
			}()
			return found
		}
	}
	close(read)
	t.Fatalf("%s printed no address: %v", arguments, lines.Err())
	return ""
}

// seconds is how long the samples go on. There is one every step.
const (
	seconds = 600
	step    = 5
)

// odd is the name of a container, with what means something in regular expressions and templates. (A quote is not
// escaped by Grafana.)
const odd = `a.b(c)\d+e$f`

// fill makes a directory with a store in it: a dashboard's samples, which begin at a time, a counter of two tenants,
// and a container of an odd name.
func fill(t *testing.T, begin time.Time) (directory string) {
	t.Helper()
	directory = t.TempDir()
	kept, err := store.Open(directory, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for second := 0; second <= seconds; second += step {
		at := begin.Add(time.Duration(second) * time.Second)
		container := []model.Label{{Name: "host", Value: "node"}, {Name: "id", Value: "0dd"}, {Name: "name", Value: odd}}
		batch := append(deploy.Everything(begin, second),
			model.Series{Name: "container_info", Kind: model.Gauge, Time: at, Labels: container, Value: 1},
			model.Series{Name: "container_cpu_usage_seconds_total", Kind: model.Counter, Time: at, Labels: container,
				Value: float64(second) / 5})
		for i, tenant := range []string{"bank", "shop"} {
			batch = append(batch, model.Series{Name: "orders_total", Kind: model.Counter, Time: at,
				Labels: []model.Label{{Name: "host", Value: "node"}, {Name: "tenant", Value: tenant}},
				Value:  float64((i + 1) * second)})
		}
		if err := kept.Append(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	return directory
}

// source is a data source as Grafana's provisioning files have it.
type source struct {
	UID           string            `json:"uid"`
	URL           string            `json:"url"`
	BasicAuth     bool              `json:"basicAuth"`
	BasicAuthUser string            `json:"basicAuthUser"`
	Settings      map[string]any    `json:"jsonData"`
	Secrets       map[string]string `json:"secureJsonData"`
}

// grafana is what a browser has of Grafana.
type grafana struct {
	t          *testing.T
	url        string
	begin, end time.Time
}

// open starts the backend of the data source for some of them, over samples from begin on.
func open(t *testing.T, begin time.Time, sources ...source) *grafana {
	t.Helper()
	input, err := json.Marshal(map[string][]source{"datasources": sources})
	if err != nil {
		t.Fatal(err)
	}
	return &grafana{t, start(t, string(input), build(t, "datasource")), begin, begin.Add(seconds * time.Second)}
}

// fetch answers the status and the body.
func (g *grafana) fetch(method, path string, body []byte) (int, []byte) {
	g.t.Helper()
	request, err := http.NewRequest(method, g.url+path, bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		g.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return reply.StatusCode, text
}

// frame is a table of Grafana's, by columns.
type frame struct {
	Schema struct {
		Meta struct {
			Type                string
			ExecutedQueryString string
			Notices             []struct{ Text string }
		}
		Fields []struct {
			Name   string
			Config struct{ DisplayNameFromDS string }
		}
	}
	Data struct{ Values [][]any }
}

// result is the answer to one query.
type result struct {
	Status int
	Error  string
	Frames []frame
}

// query asks as a panel does that is wide enough for a point every 15 seconds.
func (g *grafana) query(uid string, query map[string]any) result {
	g.t.Helper()
	q := map[string]any{"refId": "A", "datasource": map[string]string{"type": "prometheus", "uid": uid},
		"intervalMs": 15000, "maxDataPoints": 1000}
	for name, value := range query {
		q[name] = value
	}
	body, err := json.Marshal(map[string]any{"queries": []any{q}, "from": fmt.Sprint(g.begin.UnixMilli()),
		"to": fmt.Sprint(g.end.UnixMilli())})
	if err != nil {
		g.t.Fatal(err)
	}
	status, text := g.fetch(http.MethodPost, "/api/ds/query", body)
	var answer struct{ Results map[string]result }
	if err := json.Unmarshal(text, &answer); err != nil || status != http.StatusOK || len(answer.Results) != 1 {
		g.t.Fatalf("%v: %d %s: %v", query, status, text, err)
	}
	return answer.Results["A"]
}

// frames asks for what must have an answer.
func (g *grafana) frames(uid string, query map[string]any) []frame {
	g.t.Helper()
	r := g.query(uid, query)
	if r.Error != "" || r.Status != http.StatusOK {
		g.t.Fatalf("%v: %d %s", query, r.Status, r.Error)
	}
	return r.Frames
}

// health is what "Save & test" says.
func (g *grafana) health(uid string) (status, message, application string) {
	g.t.Helper()
	code, text := g.fetch(http.MethodGet, "/api/datasources/uid/"+uid+"/health", nil)
	var answer struct {
		Status, Message string
		Details         struct{ Application string }
	}
	if err := json.Unmarshal(text, &answer); err != nil || code != http.StatusOK {
		g.t.Fatalf("%d %s: %v", code, text, err)
	}
	return answer.Status, answer.Message, answer.Details.Application
}

// resource asks the Prometheus API through the data source and puts what is in the answer's data into one value.
func (g *grafana) resource(uid, method, path string, form url.Values, data any) int {
	g.t.Helper()
	path = "/api/datasources/uid/" + uid + "/resources/" + path
	var body []byte
	if method == http.MethodPost {
		body = []byte(form.Encode())
	} else if len(form) > 0 {
		path += "?" + form.Encode()
	}
	return g.decode(method, path, body, data)
}

func (g *grafana) decode(method, path string, body []byte, data any) int {
	g.t.Helper()
	status, text := g.fetch(method, path, body)
	answer := struct {
		Status string
		Data   any
	}{Data: data}
	if err := json.Unmarshal(text, &answer); status == http.StatusOK && (err != nil || answer.Status != "success") {
		g.t.Errorf("%s %s: %s: %v", method, path, strings.TrimSpace(string(text)), err)
	}
	return status
}
