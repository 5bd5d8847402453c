package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"outsight/internal/frame"
	"outsight/internal/queue"
)

// Path is where OTLP over HTTP sends metrics.
const Path = "/v1/metrics"

// bodyTime bounds the time in which a sender sends a body, idleTime that until its next byte.
const bodyTime, idleTime = 30 * time.Second, 10 * time.Second

const (
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"
)

// Handler serves OTLP over HTTP at Path, and frames at frame.Path.
func (i *Ingest) Handler() http.Handler {
	mux := http.NewServeMux()
	if i.options.Frames != nil {
		mux.HandleFunc(frame.Path, i.postFrame)
	}
	mux.HandleFunc(Path, func(w http.ResponseWriter, r *http.Request) {
		i.counts.requests[overHTTP].Add(1)
		media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		a := responder{w: w, json: media == jsonType}
		tenant, taken, err := i.post(w, r, media)
		if err != nil {
			i.refuseRequest(sender{tenant, r.RemoteAddr}, err)
			a.failed(err, i.retryAfter(err))
			return
		}
		a.write(http.StatusOK, taken.response())
	})
	return mux
}

func (i *Ingest) post(w http.ResponseWriter, r *http.Request, media string) (tenant string, taken outcome, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return "", taken, fmt.Errorf("%w: method %.20q, want POST", errUnsupported, r.Method)
	}
	tenant, batch, err := i.admit(r.Header.Values)
	if err != nil {
		return tenant, taken, err
	}
	if media != protobufType && media != jsonType {
		return tenant, taken, fmt.Errorf("%w: Content-Type %.80q, want %s or %s", errUnsupported, media, protobufType,
			jsonType)
	}
	if r.ContentLength > i.options.MaxBody {
		return tenant, taken, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, r.ContentLength, i.options.MaxBody)
	}
	body := patient(w, r.Body)
	taken, err = i.receive(r.Context(), incoming{
		body: body, hurry: body.hurry, length: -1, most: i.options.MaxBody,
		encoding: strings.ToLower(r.Header.Get("Content-Encoding")),
		json:     media == jsonType, sender: sender{tenant, r.RemoteAddr}, batch: batch})
	return tenant, taken, err
}

// incoming is a request whose body is not read yet.
type incoming struct {
	body io.Reader
	// length of the body, -1 where it is not known; at most bytes of it are read.
	length, most int64
	// encoding is how it is compressed, json whether it is JSON then.
	encoding string
	json     bool
	// hurry bounds the time left for the body.
	hurry func(time.Duration)
	sender
	batch string
}

// receive reads and accepts a request. While the body arrives it reserves the received bytes, and has neither a slot
// nor a lock.
func (i *Ingest) receive(ctx context.Context, in incoming) (taken outcome, err error) {
	if wait := i.rates.Wait(in.tenant); wait > 0 {
		return taken, rateError{in.tenant, i.options.Quotas.Of(in.tenant).SamplesPerSecond, wait}
	}
	hold := &reservation{from: i.inFlight, ctx: ctx, tenant: in.tenant, limitBodyTime: in.hurry}
	defer hold.release()
	raw, err := i.read(in.body, in.most, hold)
	if err != nil {
		return taken, asMalformed("reading the body", err)
	}
	// The queue has a copy.
	defer func() { i.bodies.put(raw) }()
	if in.length >= 0 && int64(len(raw)) != in.length {
		return taken, fmt.Errorf("%w: a message of %d bytes, and %d came", ErrMalformed, in.length, len(raw))
	}
	body, err := i.decompress(in.encoding, raw, hold)
	if err != nil {
		return taken, err
	}
	r := request{body: body, sender: in.sender, batch: in.batch}
	if in.encoding == "zstd" || in.encoding == "gzip" {
		defer func() { i.bodies.put(body) }()
	}
	if in.encoding == "zstd" {
		r.compressed = raw
	}
	if in.json {
		text := hold.held()
		limits := jsonLimits{bytes: int(i.options.MaxDecompressed), elements: i.options.Limits.Points +
			i.options.Limits.elements(), grow: hold.grow}
		if r.body, err = fromJSON(body, limits); err != nil {
			return taken, err
		}
		// The JSON is not needed any more, and the batch may need the memory.
		i.bodies.put(raw)
		if in.encoding == "zstd" || in.encoding == "gzip" {
			i.bodies.put(body)
		}
		raw, body, r.compressed = nil, nil, nil
		hold.shrink(text)
	}
	i.counts.bytes.Add(uint64(len(r.body)))
	return i.accept(ctx, r, hold)
}

// patient wraps a body whose sender has bodyTime for all of it and idleTime for each read.
func patient(w http.ResponseWriter, body io.Reader) *patientReader {
	return &patientReader{http.NewResponseController(w), body, time.Now().Add(bodyTime)}
}

type patientReader struct {
	control *http.ResponseController
	body    io.Reader
	until   time.Time
}

// hurry reduces the time left for the body.
func (p *patientReader) hurry(most time.Duration) {
	if by := time.Now().Add(most); by.Before(p.until) {
		p.until = by
	}
}

func (p *patientReader) Read(b []byte) (int, error) {
	by := time.Now().Add(idleTime)
	if by.After(p.until) {
		by = p.until
	}
	// The errors of setting a deadline are of writers that have none.
	_ = p.control.SetReadDeadline(by)
	return p.body.Read(b)
}

// classify is why a request was turned away.
func classify(err error) Refusal {
	switch {
	case errors.Is(err, errUnauthorized), errors.Is(err, errForbidden):
		return Unauthorized
	case errors.Is(err, errTooLarge), errors.Is(err, ErrTooManyPoints), errors.Is(err, ErrTooMuchMemory),
		errors.Is(err, queue.ErrTooLarge):
		return TooLarge
	case errors.Is(err, ErrMalformed), errors.Is(err, errBadHeader), errors.Is(err, errFrame):
		return Malformed
	case errors.Is(err, errFrameTime):
		return WrongTime
	case errors.Is(err, errUnsupported):
		return Unsupported
	case errors.As(err, new(rateError)):
		return TooFast
	case errors.Is(err, errBusy):
		return Busy
	case errors.Is(err, queue.ErrFull):
		return Full
	}
	return Failed
}

// refuseRequest counts a request of which nothing was accepted.
func (i *Ingest) refuseRequest(who sender, err error) {
	why := classify(err)
	i.refuse(who, why, err)
	if why == Failed && !errors.Is(err, context.Canceled) {
		i.options.Logger.Warn("a request could not be taken", "error", err)
	}
}

// responder writes answers in the form of the request.
type responder struct {
	w    http.ResponseWriter
	json bool
}

// outcome is the result of an accepted request.
type outcome struct {
	Rejections
	// message explains the rejected points to the sender, besides their numbers.
	message string
}

// response is the answer of the protocol, with the rejected points.
func (o *outcome) response() *colpb.ExportMetricsServiceResponse {
	m := &colpb.ExportMetricsServiceResponse{}
	if n := o.Total(); n > 0 {
		text := o.String()
		if o.message != "" {
			text += "; " + o.message
		}
		m.PartialSuccess = &colpb.ExportMetricsPartialSuccess{RejectedDataPoints: int64(n),
			ErrorMessage: strings.ToValidUTF8(text, "\ufffd")}
	}
	return m
}

// rateError is of a tenant that sends more in a second than it may.
type rateError struct {
	tenant string
	limit  int64
	wait   time.Duration
}

func (e rateError) Error() string {
	return fmt.Sprintf("too many samples: tenant %q may send %d a second", e.tenant, e.limit)
}

// retryAfter is the time after which a refused sender should retry.
func (i *Ingest) retryAfter(err error) time.Duration {
	var fast rateError
	if errors.As(err, &fast) {
		return max(fast.wait, i.options.RetryAfter)
	}
	return i.options.RetryAfter
}

func (a responder) failed(err error, retryAfter time.Duration) {
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
	case Malformed, WrongTime:
		status, code = http.StatusBadRequest, codes.InvalidArgument
	case Unsupported:
		status, code = http.StatusUnsupportedMediaType, codes.InvalidArgument
		if a.w.Header().Get("Allow") != "" {
			status = http.StatusMethodNotAllowed
		}
	case Busy, Full, TooFast:
		status, code = http.StatusTooManyRequests, codes.ResourceExhausted
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		a.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retryAfter.Seconds()))))
	}
	a.write(status, &statuspb.Status{Code: int32(code), Message: err.Error()})
}

func (a responder) write(status int, m proto.Message) {
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
