package ingest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"outsight/internal/ingest"
)

func init() {
	encoding.RegisterCompressor(zstdCompressor{})
	encoding.RegisterCompressor(brotli{})
}

// zstdCompressor is that of a sender.
type zstdCompressor struct{}

func (zstdCompressor) Name() string                                 { return "zstd" }
func (zstdCompressor) Compress(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }
func (zstdCompressor) Decompress(r io.Reader) (io.Reader, error)    { return zstd.NewReader(r) }
func (brotli) Name() string                                         { return "br" }
func (brotli) Compress(w io.Writer) (io.WriteCloser, error)         { return nopCloser{w}, nil }
func (brotli) Decompress(r io.Reader) (io.Reader, error)            { return r, nil }

// brotli is an encoding that the server does not know.
type brotli struct{}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// stream is a call of which a test sends what it likes.
type stream struct {
	conn   net.Conn
	framer *http2.Framer
	id     uint32
}

// dialGRPC opens a connection on which the test itself says what is sent.
func dialGRPC(t testing.TB, address string) *stream {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &stream{conn: conn, framer: http2.NewFramer(conn, conn), id: 1}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := s.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return s
}

// headers begins a call, of which more follows.
func (s *stream) headers(t testing.TB, fields ...string) {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	fields = append([]string{":method", "POST", ":scheme", "http", ":path",
		"/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
		":authority", "x", "content-type", "application/grpc", "te", "trailers"}, fields...)
	for i := 0; i < len(fields); i += 2 {
		if err := e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block.Bytes(),
		EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	s.id += 2
}

func client(t testing.TB, address string) colpb.MetricsServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return colpb.NewMetricsServiceClient(conn)
}

// Streams that begin and send no message, or not all of one, keep nobody else waiting.
func TestStalledStreams(t *testing.T) {
	s := start(t, t.TempDir(), setup{})
	for range 4 {
		stalled := dialGRPC(t, s.grpc)
		for n := range 16 {
			stalled.headers(t)
			if n%2 == 1 { // a head that promises 8 MiB, and a little of it
				if err := stalled.framer.WriteData(stalled.id-2, false,
					append([]byte{0, 0, 128, 0, 0}, make([]byte, 1000)...)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// All of them have begun.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if stats, err := s.ingest.Stats(t.Context()); err == nil && stats.GRPC == 64 && stats.InFlight > 0 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("got %+v, %v", stats, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range 20 {
		if _, err := client(t, s.grpc).Export(ctx, gaugeMessage(fmt.Sprint("g", i), time.Now(), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if answer, text := s.post(t, gaugeRequest(t, "h", time.Now(), 1), nil); answer.StatusCode != http.StatusOK {
		t.Errorf("%s %q", answer.Status, text)
	}
}

// Bodies over HTTP that stall hold the bytes that have come, and nothing besides.
func TestStalledBodies(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: ingest.Options{InFlight: 4 << 20}})
	for range 64 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.http.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 8000000\r\n\r\nabc", ingest.Path)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stats, err := s.ingest.Stats(t.Context())
		if err == nil && stats.HTTP == 64 && stats.InFlight == 64*16<<10 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %+v, %v", stats, err)
		}
	}
	for i := range 20 {
		if answer, text := s.post(t, gaugeRequest(t, fmt.Sprint("g", i), time.Now(), 1),
			nil); answer.StatusCode != http.StatusOK {
			t.Fatalf("%s %q", answer.Status, text)
		}
	}
}

// A message that decompresses to very much costs no more than the bound of one, whichever the compression, and is
// refused.
func TestGRPCBombs(t *testing.T) {
	s := start(t, t.TempDir(), setup{Options: ingest.Options{MaxDecompressed: 4 << 20}})
	bomb := make([]byte, 1<<30)
	for name, compressed := range map[string][]byte{"gzip": zipped(t, bomb), "zstd": zstandard(t, bomb, true)} {
		message := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(compressed))), compressed...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		st := call(t, s.grpc, message, "grpc-encoding", name)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; st != codes.ResourceExhausted || took > 96<<20 {
			t.Errorf("%s: %v, and %d MiB were allocated", name, st, took>>20)
		}
	}
	for want, fields := range map[codes.Code][]string{
		codes.Unimplemented:   {"grpc-encoding", "br"},
		codes.InvalidArgument: {"grpc-encoding", "identity"}, // a message that says that it is compressed
	} {
		if got := call(t, s.grpc, []byte{1, 0, 0, 0, 1, 0}, fields...); got != want {
			t.Errorf("%v: got %v, want %v", fields, got, want)
		}
	}
	for text, message := range map[string][]byte{"too long": {0, 255, 255, 255, 255},
		"an unknown flag": {2, 0, 0, 0, 0}, "no zstd": {1, 0, 0, 0, 3, 'a', 'b', 'c'}} {
		if got := call(t, s.grpc, message, "grpc-encoding", "zstd"); got != codes.ResourceExhausted &&
			got != codes.InvalidArgument {
			t.Errorf("%s: got %v", text, got)
		}
	}
	if got := call(t, s.grpc, []byte{0, 0, 0, 0, 9, 'a'}); got != codes.InvalidArgument {
		t.Errorf("a message that ends early: %v", got)
	}
	_, err := client(t, s.grpc).Export(t.Context(), gaugeMessage("g", time.Now(), 1), grpc.UseCompressor("br"))
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "gzip, zstd or identity") {
		t.Errorf("got %v", err)
	}
	if _, err := client(t, s.grpc).Export(t.Context(), gaugeMessage("g", time.Now(), 1)); err != nil {
		t.Error(err)
	}
	if stats := s.drained(t); stats.InFlight != 0 {
		t.Errorf("%d bytes are still held", stats.InFlight)
	}
}

// call makes one call with a message as it travels.
func call(t testing.TB, address string, message []byte, fields ...string) codes.Code {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodPost,
		"http://"+address+"/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", bytes.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	var code int
	if _, err := fmt.Sscan(answer.Trailer.Get("Grpc-Status"), &code); err != nil {
		t.Fatalf("no status: %v, %v", answer.Header, answer.Trailer)
	}
	return codes.Code(code)
}

// What gRPC clients of any kind may do otherwise.
func TestGRPCAnswers(t *testing.T) {
	s := start(t, t.TempDir(), setup{})
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Invoke(t.Context(), "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
		gaugeMessage("g", time.Now(), 1), &colpb.ExportMetricsServiceResponse{})
	if status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	// What a sender is told may have any bytes of it.
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-outsight-batch", "no%slash")
	_, err = colpb.NewMetricsServiceClient(conn).Export(ctx, gaugeMessage("g", time.Now(), 1))
	if st := status.Convert(err); st.Code() != codes.InvalidArgument || !strings.Contains(st.Message(), `"no%slash"`) {
		t.Error(err)
	}
	answer, err := http.Get("http://" + s.grpc)
	if err == nil {
		t.Errorf("HTTP/1 was answered: %s", answer.Status)
	}
}
