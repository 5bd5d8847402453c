package ingest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"outsight/internal/access"
)

// grpcPath is the one method that there is.
const grpcPath = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

const (
	// maxStreams bounds the requests at a time on one connection.
	maxStreams = 32
	// streamBuffer and connectionBuffer bound received but unread bytes.
	streamBuffer, connectionBuffer = 64 << 10, 256 << 10
)

// ServeGRPC serves OTLP over gRPC on the connections of l until ctx ends, and closes l. It is unary gRPC on top of
// net/http's HTTP/2, not the library's server: that one reads a whole message before its bytes can be counted; here
// they are bounded while it arrives and while it is decompressed.
func (i *Ingest) ServeGRPC(ctx context.Context, l net.Listener) error {
	server := access.Server(i.GRPC(), i.options.Logger)
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	// Senders keep a connection for as long as they live.
	server.IdleTimeout = 5 * time.Minute
	server.HTTP2.MaxConcurrentStreams = maxStreams
	server.HTTP2.MaxReceiveBufferPerStream, server.HTTP2.MaxReceiveBufferPerConnection = streamBuffer, connectionBuffer
	return access.Serve(ctx, server, l)
}

// GRPC returns the handler for OTLP over gRPC, which needs HTTP/2.
func (i *Ingest) GRPC() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		if r.Method != http.MethodPost || r.ProtoMajor != 2 || media != "application/grpc" &&
			media != "application/grpc+proto" {
			i.counts.requests[overGRPC].Add(1)
			i.refuseRequest(sender{"", r.RemoteAddr}, fmt.Errorf("%w: %.20q with Content-Type %.80q, want gRPC",
				errUnsupported, r.Method, media))
			http.Error(w, "want gRPC", http.StatusUnsupportedMediaType)
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Accept-Encoding", "identity, gzip, zstd")
		if r.URL.Path != grpcPath {
			if tenant, _, err := i.admit(r.Header.Values); err != nil {
				i.refuseRequest(sender{tenant, r.RemoteAddr}, err)
				finish(w, i.status(err))
				return
			}
			finish(w, &statuspb.Status{Code: int32(codes.Unimplemented),
				Message: fmt.Sprintf("unknown method %.200q, want %s", r.URL.Path, grpcPath)})
			return
		}
		i.counts.requests[overGRPC].Add(1)
		tenant, taken, err := i.export(w, r)
		if err == nil {
			err = writeMessage(w, taken.response())
		}
		if err != nil {
			i.refuseRequest(sender{tenant, r.RemoteAddr}, err)
			finish(w, i.status(err))
			return
		}
		finish(w, &statuspb.Status{})
	})
}

// messageHeader is the size of the header of a message: a compression flag and the length.
const messageHeader = 5

// errCodec is of a message in an encoding that is not known here.
var errCodec = errors.New("unknown grpc-encoding")

func (i *Ingest) export(w http.ResponseWriter, r *http.Request) (tenant string, taken outcome, err error) {
	// Header names of HTTP/2 are lower case; those of r are as Go writes them.
	tenant, batch, err := i.admit(r.Header.Values)
	if err != nil {
		return tenant, taken, err
	}
	access.Admit(r)
	encoding := strings.ToLower(r.Header.Get("Grpc-Encoding"))
	if encoding != "" && encoding != "identity" && encoding != "gzip" && encoding != "zstd" {
		return tenant, taken, fmt.Errorf("%w: %w %.40q, want gzip, zstd or identity", errUnsupported, errCodec, encoding)
	}
	ctx, cancel := withTimeout(r.Context(), r.Header.Get("Grpc-Timeout"))
	defer cancel()
	body := patient(w, r.Body)
	var head [messageHeader]byte
	if _, err := io.ReadFull(body, head[:]); err != nil {
		return tenant, taken, asMalformed("reading a message's head", err)
	}
	length := int64(binary.BigEndian.Uint32(head[1:]))
	most := i.options.MaxDecompressed
	if head[0] == 0 {
		encoding = ""
	} else if most = i.options.MaxBody; head[0] != 1 || encoding == "" || encoding == "identity" {
		return tenant, taken, fmt.Errorf("%w: a message's head is %x, and the encoding %q", ErrMalformed, head, encoding)
	}
	if length > most {
		return tenant, taken, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, length, most)
	}
	taken, err = i.receive(ctx, incoming{
		body: io.LimitReader(body, length), hurry: body.hurry, length: length, most: most, encoding: encoding,
		sender: sender{tenant, r.RemoteAddr}, batch: batch})
	return tenant, taken, err
}

// withTimeout ends ctx when the caller no longer waits: "5S" is five seconds.
func withTimeout(ctx context.Context, timeout string) (context.Context, context.CancelFunc) {
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond,
		'u': time.Microsecond, 'n': time.Nanosecond}
	if len(timeout) < 2 || len(timeout) > 9 {
		return ctx, func() {}
	}
	n, err := strconv.ParseUint(timeout[:len(timeout)-1], 10, 32)
	unit := units[timeout[len(timeout)-1]]
	if err != nil || unit == 0 {
		return ctx, func() {}
	}
	if n > uint64(time.Hour/unit) { // none waits longer
		n, unit = 1, time.Hour
	}
	return context.WithTimeout(ctx, time.Duration(n)*unit)
}

func writeMessage(w io.Writer, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b)))
	_, _ = w.Write(append(head, b...)) // who sent has gone
	return nil
}

// finish writes the status that ends an answer.
func finish(w http.ResponseWriter, s *statuspb.Status) {
	trailer := func(name, value string) { w.Header().Set(http.TrailerPrefix+name, value) }
	trailer("Grpc-Status", strconv.Itoa(int(s.Code)))
	if s.Message != "" {
		s.Message = strings.ToValidUTF8(s.Message, "\ufffd")
		trailer("Grpc-Message", percent(s.Message))
	}
	if len(s.Details) > 0 {
		if b, err := proto.Marshal(s); err == nil {
			trailer("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(b))
		}
	}
}

// percent percent-encodes a grpc-message header.
func percent(message string) string {
	var b strings.Builder
	for _, c := range []byte(message) {
		if c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// status is the gRPC status of an error. Only RESOURCE_EXHAUSTED with a RetryInfo makes a sender retry.
func (i *Ingest) status(err error) *statuspb.Status {
	code := codes.Unavailable
	s := &statuspb.Status{Message: err.Error()}
	switch classify(err) {
	case Unauthorized:
		code = codes.Unauthenticated
		if errors.Is(err, errForbidden) {
			code = codes.PermissionDenied
		}
	case TooLarge, Malformed, Unsupported:
		code = codes.InvalidArgument
		switch {
		case errors.Is(err, errTooLarge):
			code = codes.ResourceExhausted
		case errors.Is(err, errCodec):
			code = codes.Unimplemented
		}
	case Busy, Full, TooFast:
		code = codes.ResourceExhausted
		if info, detailErr := anypb.New(&errdetails.RetryInfo{RetryDelay: durationpb.New(i.retryAfter(err))}); detailErr == nil {
			s.Details = append(s.Details, info)
		}
	}
	s.Code = int32(code)
	return s
}
