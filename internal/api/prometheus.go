package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"outsight/internal/store"
)

// Backend answers what the Prometheus HTTP API is asked. *store.Store is one. Its answers are
// ready JSON, because clients compare the very form of Prometheus's numbers.
type Backend interface {
	Evaluate(context.Context, store.Evaluation) (store.Answer, error)
	Find(context.Context, store.Lookup) (store.Answer, error)
	Format(query string) (string, error)
}

// maxPrometheusForm bounds the body of a request, maxMatchers the selectors in it.
const (
	maxPrometheusForm = 1 << 20
	maxMatchers       = 100
)

// Prometheus answers the query part of the Prometheus HTTP API at its paths, /api/v1/..., in
// the same form, so that Grafana, promtool and scripts work, and its remote read. There are no rules, alerts or
// exemplars: their lists are empty.
func Prometheus(q Backend) http.Handler {
	p := &prometheus{q, usualPace}
	mux := http.NewServeMux()
	read := func(path string, f func(*http.Request) (store.Answer, error)) {
		mux.Handle(path, p.handler(f, http.MethodGet))
	}
	ask := func(path string, f func(*http.Request) (store.Answer, error)) {
		mux.Handle(path, p.handler(f, http.MethodGet, http.MethodPost))
	}
	ask("/api/v1/query", p.query)
	ask("/api/v1/query_range", p.queryRange)
	ask("/api/v1/format_query", p.formatQuery)
	ask("/api/v1/series", p.series)
	ask("/api/v1/labels", p.labels)
	read("/api/v1/label/{name}/values", p.labelValues)
	read("/api/v1/metadata", p.metadata)
	read("/api/v1/status/buildinfo", promBuildInfo)
	ask("/api/v1/query_exemplars", constant(`[]`))
	mux.HandleFunc("/api/v1/read", p.remoteRead)
	read("/api/v1/rules", constant(`{"groups":[]}`))
	read("/api/v1/alerts", constant(`{"alerts":[]}`))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		promError(w, http.StatusNotFound, "not_found", fmt.Sprintf("there is no %s", r.URL.Path))
	})
	return mux
}

type prometheus struct {
	backend Backend
	pace    pace
}

// answerHolder is a Backend that bounds the bytes of answers that are being written.
type answerHolder interface {
	Hold(tenant string, n int64) (release func(), err error)
}

// remoteReader is a Backend that serves Prometheus's remote read. With an error nothing was written.
type remoteReader interface {
	RemoteRead(w http.ResponseWriter, r *http.Request, tenant string) error
}

func (p *prometheus) remoteRead(w http.ResponseWriter, r *http.Request) {
	reader, ok := p.backend.(remoteReader)
	switch {
	case !ok:
		promError(w, http.StatusNotImplemented, "not_implemented", "remote read is not offered here")
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		promError(w, http.StatusMethodNotAllowed, "bad_data", fmt.Sprintf("%s is not possible here, only POST", r.Method))
	default:
		if err := reader.RemoteRead(w, r, ""); err != nil {
			status, kind := promErrorKind(err)
			promError(w, status, kind, err.Error())
		}
	}
}

func constant(data string) func(*http.Request) (store.Answer, error) {
	return func(*http.Request) (store.Answer, error) { return store.Answer{JSON: []byte(data)}, nil }
}

func (p *prometheus) query(r *http.Request) (store.Answer, error) {
	form := promForm{values: r.Form}
	e := store.Evaluation{Query: form.text("query"), From: form.time("time", time.Now())}
	e.To = e.From
	form.limits(&e)
	if form.err != nil {
		return store.Answer{}, form.err
	}
	return p.backend.Evaluate(r.Context(), e)
}

func (p *prometheus) queryRange(r *http.Request) (store.Answer, error) {
	form := promForm{values: r.Form}
	e := store.Evaluation{
		Query: form.text("query"),
		From:  form.requiredTime("start"), To: form.requiredTime("end"), Step: form.step("step"),
	}
	form.limits(&e)
	if form.err != nil {
		return store.Answer{}, form.err
	}
	return p.backend.Evaluate(r.Context(), e)
}

func (p *prometheus) formatQuery(r *http.Request) (store.Answer, error) {
	formatted, err := p.backend.Format(r.Form.Get("query"))
	if err != nil {
		return store.Answer{}, err
	}
	return promJSON(formatted)
}

func (p *prometheus) series(r *http.Request) (store.Answer, error) {
	return p.find(r, store.Lookup{What: store.FindSeries})
}

func (p *prometheus) labels(r *http.Request) (store.Answer, error) {
	return p.find(r, store.Lookup{What: store.FindLabelNames})
}

func (p *prometheus) labelValues(r *http.Request) (store.Answer, error) {
	return p.find(r, store.Lookup{What: store.FindLabelValues, Label: r.PathValue("name")})
}

func (p *prometheus) find(r *http.Request, l store.Lookup) (store.Answer, error) {
	form := promForm{values: r.Form}
	l.Matchers = form.matchers()
	l.From, l.To = form.time("start", time.Time{}), form.time("end", time.Time{})
	l.Limit = form.count("limit")
	if form.err != nil {
		return store.Answer{}, form.err
	}
	return p.backend.Find(r.Context(), l)
}

func promJSON(v any) (store.Answer, error) {
	data, err := json.Marshal(v)
	return store.Answer{JSON: data}, err
}

// handler reads the request's form and writes what f answers.
func (p *prometheus) handler(f func(*http.Request) (store.Answer, error), methods ...string) http.Handler {
	allowed := strings.Join(methods, " or ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			promError(w, http.StatusMethodNotAllowed, "bad_data", fmt.Sprintf("%s is not possible here, only %s",
				r.Method, allowed))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxPrometheusForm)
		if err := r.ParseForm(); err != nil {
			status := http.StatusBadRequest
			var tooLarge *http.MaxBytesError
			if errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			promError(w, status, "bad_data", fmt.Sprintf("reading form: %v", err))
			return
		}
		answer, err := f(r)
		if err != nil {
			status, kind := promErrorKind(err)
			promError(w, status, kind, err.Error())
			return
		}
		p.answer(w, r, answer)
	})
}

// statusClientClosed is Prometheus's status for a client that disconnected.
const statusClientClosed = 499

func promErrorKind(err error) (status int, errorType string) {
	var bad requestError
	switch {
	case errors.As(err, &bad), errors.Is(err, store.ErrBadQuery):
		return http.StatusBadRequest, "bad_data"
	case errors.Is(err, errors.ErrUnsupported):
		return http.StatusNotImplemented, "not_implemented"
	case errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrBusy):
		return http.StatusServiceUnavailable, "unavailable"
	case errors.Is(err, store.ErrTimeout):
		return http.StatusServiceUnavailable, "timeout"
	case errors.Is(err, store.ErrCanceled):
		return statusClientClosed, "canceled"
	case errors.Is(err, store.ErrExecution):
		return http.StatusUnprocessableEntity, "execution"
	}
	return http.StatusInternalServerError, "internal"
}

// promEnvelope is the answer without its data, which is written separately: it can be large and is JSON already.
type promEnvelope struct {
	Status    string   `json:"status"`
	ErrorType string   `json:"errorType,omitempty"`
	Error     string   `json:"error,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	Infos     []string `json:"infos,omitempty"`
}

func promError(w http.ResponseWriter, status int, errorType, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may have disconnected: nothing to report.
	_ = json.NewEncoder(w).Encode(promEnvelope{Status: "error", ErrorType: errorType, Error: message})
}

func (p *prometheus) answer(w http.ResponseWriter, r *http.Request, a store.Answer) {
	envelope, err := json.Marshal(promEnvelope{Status: "success", Warnings: a.Warnings, Infos: a.Infos})
	if err != nil {
		promError(w, http.StatusInternalServerError, "internal", err.Error())
		return
	}
	if holder, ok := p.backend.(answerHolder); ok {
		release, err := holder.Hold("", int64(len(a.JSON)))
		if err != nil {
			status, kind := promErrorKind(err)
			promError(w, status, kind, err.Error())
			return
		}
		defer release()
	}
	w.Header().Set("Content-Type", "application/json")
	p.pace.write(w, r, append(envelope[:len(envelope)-1], `,"data":`...), a.JSON, []byte{'}'})
}
