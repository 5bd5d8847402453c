package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"outsight/internal/queue"
)

// Path is where OTLP over HTTP sends metrics.
const Path = "/v1/metrics"

// bodyTime is how long a sender may take to send a body.
const bodyTime = 30 * time.Second

const (
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"
)

// Handler takes metrics over HTTP at Path.
func (i *Ingest) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(Path, func(w http.ResponseWriter, r *http.Request) {
		i.counts.requests[overHTTP].Add(1)
		media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		a := answerer{w: w, json: media == jsonType, retryAfter: i.options.RetryAfter}
		// The errors of setting a deadline are of writers that have none.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
		tenant, rejected, err := i.post(w, r, media)
		if err != nil {
			i.turnAway(sender{tenant, r.RemoteAddr}, err)
			a.failed(err)
			return
		}
		a.taken(rejected)
	})
	return mux
}

func (i *Ingest) post(w http.ResponseWriter, r *http.Request, media string) (tenant string, rejected Rejections, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return "", rejected, fmt.Errorf("%w: method %.20q, want POST", errUnsupported, r.Method)
	}
	tenant, batch, err := i.admit(r.Header.Values)
	if err != nil {
		return tenant, rejected, err
	}
	if media != protobufType && media != jsonType {
		return tenant, rejected, fmt.Errorf("%w: Content-Type %.80q, want %s or %s", errUnsupported, media, protobufType, jsonType)
	}
	if r.ContentLength > i.options.MaxBody {
		return tenant, rejected, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, r.ContentLength, i.options.MaxBody)
	}
	raw, held, err := i.read(r.Body, i.options.MaxBody)
	defer func() { i.release(held) }()
	if err != nil {
		return tenant, rejected, asMalformed("reading the body", err)
	}
	encoding := strings.ToLower(r.Header.Get("Content-Encoding"))
	// The queue has its own copy of what it took.
	defer i.bodies.put(raw)
	body, more, err := i.decompress(encoding, raw)
	held += more
	if err != nil {
		return tenant, rejected, err
	}
	if encoding == "zstd" || encoding == "gzip" {
		defer i.bodies.put(body)
	}
	in := request{body: body, sender: sender{tenant, r.RemoteAddr}, batch: batch}
	if encoding == "zstd" {
		in.compressed = raw
	}
	if media == jsonType {
		if in.body, err = fromJSON(body, i.jsonLimits(&held)); err != nil {
			return tenant, rejected, err
		}
		in.compressed = nil
	}
	i.counts.bytes.Add(uint64(len(in.body)))
	rejected, err = i.take(r.Context(), in)
	return tenant, rejected, err
}

// classify is why a request was turned away.
func classify(err error) Refusal {
	switch {
	case errors.Is(err, errUnauthorized), errors.Is(err, errForbidden):
		return Unauthorized
	case errors.Is(err, errTooLarge), errors.Is(err, ErrTooManyPoints), errors.Is(err, ErrTooMuch), errors.Is(err, queue.ErrTooLarge):
		return TooLarge
	case errors.Is(err, ErrMalformed), errors.Is(err, errBadHeader):
		return Malformed
	case errors.Is(err, errUnsupported):
		return Unsupported
	case errors.Is(err, errBusy):
		return Busy
	case errors.Is(err, queue.ErrFull):
		return Full
	}
	return Failed
}

// turnAway counts a request of which nothing was taken.
func (i *Ingest) turnAway(who sender, err error) {
	why := classify(err)
	i.refuse(who, why, err)
	if why == Failed && !errors.Is(err, context.Canceled) {
		i.options.Logger.Warn("a request could not be taken", "error", err)
	}
}

// answerer writes answers in the form of the request.
type answerer struct {
	w          http.ResponseWriter
	json       bool
	retryAfter time.Duration
}

func (a answerer) taken(rejected Rejections) {
	a.write(http.StatusOK, response(rejected))
}

// response tells the sender of what was rejected.
func response(rejected Rejections) *colpb.ExportMetricsServiceResponse {
	m := &colpb.ExportMetricsServiceResponse{}
	if n := rejected.Total(); n > 0 {
		m.PartialSuccess = &colpb.ExportMetricsPartialSuccess{RejectedDataPoints: int64(n), ErrorMessage: rejected.String()}
	}
	return m
}

func (a answerer) failed(err error) {
	status, code := http.StatusServiceUnavailable, codes.Unavailable
	switch classify(err) {
	case Unauthorized:
		status, code = http.StatusUnauthorized, codes.Unauthenticated
		if errors.Is(err, errForbidden) {
			status, code = http.StatusForbidden, codes.PermissionDenied
		} else {
			a.w.Header().Set("WWW-Authenticate", "Bearer")
		}
	case TooLarge:
		status, code = http.StatusRequestEntityTooLarge, codes.InvalidArgument
	case Malformed:
		status, code = http.StatusBadRequest, codes.InvalidArgument
	case Unsupported:
		status, code = http.StatusUnsupportedMediaType, codes.InvalidArgument
		if a.w.Header().Get("Allow") != "" {
			status = http.StatusMethodNotAllowed
		}
	case Busy, Full:
		status, code = http.StatusTooManyRequests, codes.ResourceExhausted
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		a.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(cmp.Or(a.retryAfter, time.Second).Seconds()))))
	}
	a.write(status, &statuspb.Status{Code: int32(code), Message: err.Error()})
}

func (a answerer) write(status int, m proto.Message) {
	contentType, encode := protobufType, proto.Marshal
	if a.json {
		contentType, encode = jsonType, protojson.Marshal
	}
	b, err := encode(m)
	if err != nil {
		// An error's text need not be UTF-8, which a message's must.
		status, b = http.StatusBadRequest, nil
	}
	a.w.Header().Set("Content-Type", contentType)
	a.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	a.w.WriteHeader(status)
	_, _ = a.w.Write(b) // who sent has gone
}
