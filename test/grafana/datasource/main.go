// Command datasource is Grafana's Prometheus data source without the rest of Grafana: its backend (promlib), on
// the paths at which a browser finds it there. The data sources are those of a provisioning file on the
// standard input, as JSON. It prints its address, and ends when the input does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/backend/log"
	"github.com/grafana/grafana-plugin-sdk-go/experimental/apis/datasource/v0alpha1"
	"github.com/grafana/grafana/pkg/promlib"
)

// provisioned is a data source as Grafana's provisioning files have it.
type provisioned struct {
	UID           string            `json:"uid"`
	URL           string            `json:"url"`
	BasicAuth     bool              `json:"basicAuth"`
	BasicAuthUser string            `json:"basicAuthUser"`
	Settings      json.RawMessage   `json:"jsonData"`
	Secrets       map[string]string `json:"secureJsonData"`
}

type server struct {
	prometheus *promlib.Service
	sources    map[string]backend.DataSourceInstanceSettings
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "datasource:", err)
		os.Exit(1)
	}
}

func run() error {
	input := json.NewDecoder(os.Stdin)
	var file struct {
		Sources []provisioned `json:"datasources"`
	}
	if err := input.Decode(&file); err != nil {
		return fmt.Errorf("reading the data sources: %w", err)
	}
	s := &server{promlib.NewService(nil, log.NewWithLevel(log.Error), nil),
		map[string]backend.DataSourceInstanceSettings{}}
	for i, p := range file.Sources {
		s.sources[p.UID] = backend.DataSourceInstanceSettings{
			ID: int64(i + 1), UID: p.UID, Name: p.UID, Type: "prometheus", URL: p.URL, JSONData: p.Settings,
			BasicAuthEnabled: p.BasicAuth, BasicAuthUser: p.BasicAuthUser, DecryptedSecureJSONData: p.Secrets,
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/ds/query", s.query)
	mux.HandleFunc("GET /api/datasources/uid/{uid}/health", s.health)
	mux.HandleFunc("/api/datasources/uid/{uid}/resources/{path...}", s.resource)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		listener.Close()
	}()
	fmt.Printf("http://%s\n", listener.Addr())
	_ = http.Serve(listener, mux) // until the listener is closed
	return nil
}

// of is what Grafana hands to the backend of a data source with each request.
func (s *server) of(r *http.Request, uid string) (context.Context, backend.PluginContext, error) {
	source, ok := s.sources[uid]
	if !ok {
		return nil, backend.PluginContext{}, fmt.Errorf("there is no data source %q", uid)
	}
	config := backend.NewGrafanaCfg(nil)
	return backend.WithGrafanaConfig(r.Context(), config),
		backend.PluginContext{OrgID: 1, PluginID: "prometheus", DataSourceInstanceSettings: &source,
			GrafanaConfig: config}, nil
}

func (s *server) query(w http.ResponseWriter, r *http.Request) {
	var asked v0alpha1.QueryDataRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	queries, _, err := v0alpha1.ToDataSourceQueries(asked)
	if err != nil || len(queries) == 0 || asked.Queries[0].Datasource == nil {
		http.Error(w, fmt.Sprintf("%d queries of no data source: %v", len(queries), err), http.StatusBadRequest)
		return
	}
	ctx, plugin, err := s.of(r, asked.Queries[0].Datasource.UID)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	answer, err := s.prometheus.QueryData(ctx, &backend.QueryDataRequest{PluginContext: plugin, Queries: queries})
	reply(w, answer, err)
}

func (s *server) health(w http.ResponseWriter, r *http.Request) {
	ctx, plugin, err := s.of(r, r.PathValue("uid"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	result, err := s.prometheus.CheckHealth(ctx, &backend.CheckHealthRequest{PluginContext: plugin})
	if err != nil {
		reply(w, nil, err)
		return
	}
	reply(w, map[string]any{"status": result.Status.String(), "message": result.Message,
		"details": json.RawMessage(result.JSONDetails)}, nil)
}

func (s *server) resource(w http.ResponseWriter, r *http.Request) {
	ctx, plugin, err := s.of(r, r.PathValue("uid"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	path := r.PathValue("path")
	request := &backend.CallResourceRequest{PluginContext: plugin, Path: path, Method: r.Method, URL: path + "?" +
		r.URL.RawQuery, Body: body}
	send := backend.CallResourceResponseSenderFunc(func(answer *backend.CallResourceResponse) error {
		for name, values := range answer.Headers {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Status)
		_, err := w.Write(answer.Body)
		return err
	})
	if err := s.prometheus.CallResource(ctx, request, send); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

func reply(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // who asked may have gone
}
