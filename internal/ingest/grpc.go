package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // senders compress with it by default
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"outsight/internal/access"
)

const (
	grpcService = "opentelemetry.proto.collector.metrics.v1.MetricsService"
	// maxStreams bounds the requests at a time on one connection.
	maxStreams = 32
)

// GRPC is a server that takes metrics over gRPC. TLS is the listener's.
func (i *Ingest) GRPC(options ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{}), grpc.MaxRecvMsgSize(int(i.options.MaxDecompressed)), grpc.MaxConcurrentStreams(maxStreams),
		// Before the message is read: who sends it, and whether there is room.
		grpc.InTapHandle(func(ctx context.Context, about *tap.Info) (context.Context, error) {
			tenant, batch, err := i.admit(about.Header.Get)
			if err == nil && i.inFlight.Load() >= i.options.InFlight {
				err = errBusy
			}
			if err != nil {
				i.counts.requests[overGRPC].Add(1)
				i.turnAway(sender{tenant, peerOf(ctx)}, err)
				return nil, i.status(err)
			}
			if p, ok := peer.FromContext(ctx); ok {
				access.Admit(p.Addr)
			}
			return context.WithValue(ctx, admittedKey{}, admitted{tenant, batch}), nil
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 5 * time.Minute}),
		grpc.ConnectionTimeout(10 * time.Second), grpc.MaxHeaderListSize(16 << 10),
	}, options...)...)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: grpcService, HandlerType: (*any)(nil),
		Methods:  []grpc.MethodDesc{{MethodName: "Export", Handler: export}},
		Metadata: "opentelemetry/proto/collector/metrics/v1/metrics_service.proto",
	}, i)
	return s
}

// admitted is who may send, and what it calls the batch.
type admitted struct{ tenant, batch string }

type admittedKey struct{}

// peerOf is the address of the other end, empty where it is not known.
func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

func export(service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	i := service.(*Ingest)
	i.counts.requests[overGRPC].Add(1)
	rejected, err := i.export(ctx, decode)
	if err != nil {
		who, _ := ctx.Value(admittedKey{}).(admitted)
		i.turnAway(sender{who.tenant, peerOf(ctx)}, err)
		return nil, i.status(err)
	}
	return response(rejected), nil
}

func (i *Ingest) export(ctx context.Context, decode func(any) error) (rejected Rejections, err error) {
	who, ok := ctx.Value(admittedKey{}).(admitted)
	if !ok {
		return rejected, errUnauthorized
	}
	body, err := i.receive(ctx, decode)
	if err != nil {
		return rejected, err
	}
	held := int64(len(body))
	if err := i.reserve(held); err != nil {
		return rejected, err
	}
	defer i.release(held)
	i.counts.bytes.Add(uint64(len(body)))
	return i.take(ctx, request{body: body, sender: sender{who.tenant, peerOf(ctx)}, batch: who.batch})
}

// receive reads and decompresses a message. How much memory that takes is known when it is there, so few are read at a time.
func (i *Ingest) receive(ctx context.Context, decode func(any) error) (body []byte, err error) {
	select {
	case i.receiving <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-i.receiving }()
	if err := decode(&body); err != nil {
		return nil, receivedError{err}
	}
	return body, nil
}

// receivedError is what gRPC itself says of a message.
type receivedError struct{ error }

// Is makes it an ErrMalformed.
func (e receivedError) Is(target error) bool { return target == ErrMalformed }

func (e receivedError) Unwrap() error { return e.error }

// status is what gRPC answers. Only RESOURCE_EXHAUSTED with a RetryInfo lets a sender try again.
func (i *Ingest) status(err error) error {
	var received receivedError
	if errors.As(err, &received) {
		return received.error
	}
	code := codes.Unavailable
	switch classify(err) {
	case Unauthorized:
		code = codes.Unauthenticated
		if errors.Is(err, errForbidden) {
			code = codes.PermissionDenied
		}
	case TooLarge, Malformed, Unsupported:
		code = codes.InvalidArgument
	case Busy, Full:
		s, detailErr := status.New(codes.ResourceExhausted, err.Error()).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(i.options.RetryAfter)})
		if detailErr == nil {
			return s.Err()
		}
		code = codes.ResourceExhausted
	}
	return status.Error(code, err.Error())
}

// rawCodec leaves requests as the bytes that they are.
type rawCodec struct{}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encoding a %T: want a message", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("decoding into a %T: want bytes", v)
	}
	*to = data.Materialize()
	return nil
}

func init() { encoding.RegisterCompressor(zstdCompressor{}) }

// zstdCompressor lets gRPC senders compress with zstd.
type zstdCompressor struct{}

var zstdReaders, zstdWriters sync.Pool

// Name implements encoding.Compressor.
func (zstdCompressor) Name() string { return "zstd" }

// Compress implements encoding.Compressor.
func (zstdCompressor) Compress(w io.Writer) (io.WriteCloser, error) {
	z, ok := zstdWriters.Get().(*zstd.Encoder)
	if !ok {
		var err error
		if z, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20)); err != nil {
			return nil, err
		}
	}
	z.Reset(w)
	return &pooledWriter{z}, nil
}

type pooledWriter struct{ *zstd.Encoder }

func (p *pooledWriter) Close() error {
	err := p.Encoder.Close()
	zstdWriters.Put(p.Encoder)
	return err
}

// Decompress implements encoding.Compressor. How much is read of it, gRPC bounds.
func (zstdCompressor) Decompress(r io.Reader) (io.Reader, error) {
	z, ok := zstdReaders.Get().(*zstd.Decoder)
	if !ok {
		var err error
		if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow)); err != nil {
			return nil, err
		}
	}
	if err := z.Reset(r); err != nil {
		return nil, err
	}
	return &pooledReader{z}, nil
}

type pooledReader struct{ decoder *zstd.Decoder }

func (p *pooledReader) Read(b []byte) (int, error) {
	if p.decoder == nil {
		return 0, io.EOF
	}
	n, err := p.decoder.Read(b)
	if err == io.EOF {
		zstdReaders.Put(p.decoder)
		p.decoder = nil
	}
	return n, err
}
