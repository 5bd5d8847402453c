package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"outsight/internal/access"
)

// doorWithRoles has a token of each role.
func doorWithRoles(t *testing.T) (access.Access, []string) {
	t.Helper()
	roles := []string{"send", "read", "record", "administer"}
	var text strings.Builder
	for _, role := range roles {
		text.WriteString("a-token-with-role-" + role + " " + role + "\n")
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	door, err := (&secureFlags{access.Files{Tokens: path}}).open(slog.New(slog.DiscardHandler), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return door, roles
}

// serveGRPC serves what takes OTLP over gRPC, and tells all its methods.
func serveGRPC(t *testing.T, in *receiver, options ...grpc.DialOption) (l *access.Listener, client *grpc.ClientConn, methods []string) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = in.listeners.Limit(inner, "otlp-grpc", access.SenderLimits)
	server := in.ingest.GRPC()
	ended := make(chan error)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	for service, info := range server.GetServiceInfo() {
		for _, m := range info.Methods {
			methods = append(methods, "/"+service+"/"+m.Name)
		}
	}
	client, err = grpc.NewClient(inner.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return l, client, methods
}

// Only a token with the role send brings metrics in: by HTTP, and by every method of gRPC, also those that are not there.
func TestOnlySendersSend(t *testing.T) {
	door, roles := doorWithRoles(t)
	_, in := openReceiverIn(t, t.TempDir()+"/data", door, headerOff)
	runReceiver(t, in)
	handler := in.access.Senders(in.ingest.Handler())
	l, client, methods := serveGRPC(t, in)
	if len(methods) != 1 {
		t.Errorf("methods %q: decide who may call a new one", methods)
	}
	for _, role := range append(roles, "none") {
		r := httptest.NewRequest(http.MethodPost, "/v1/metrics", strings.NewReader(""))
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("Authorization", "Bearer a-token-with-role-"+role)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		want := http.StatusUnauthorized
		if role == "send" {
			want = http.StatusOK
		}
		if w.Code != want {
			t.Errorf("OTLP over HTTP as %s: %d, want %d", role, w.Code, want)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer a-token-with-role-"+role)
		for _, method := range append(methods, "/some.other.Service/Method") {
			err := client.Invoke(ctx, method, &colpb.ExportMetricsServiceRequest{}, &colpb.ExportMetricsServiceResponse{})
			if role == "send" {
				if code := status.Code(err); method == methods[0] && code != codes.OK || method != methods[0] && code != codes.Unimplemented {
					t.Errorf("%s as %s: %v", method, role, err)
				}
			} else if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s as %s: %v, want Unauthenticated", method, role, err)
			}
		}
	}
	// The connection has shown a token by now.
	for _, d := range l.Drops() {
		if used := map[string]uint64{"otlp-grpc/connections": 1}[d.Name]; d.Used != used {
			t.Errorf("%+v, want %d in use", d, used)
		}
	}
}

// A message that is small when it comes and large when it is decompressed takes no more memory than messages may.
func TestGRPCBomb(t *testing.T) {
	door, _ := doorWithRoles(t)
	_, in := openReceiverIn(t, t.TempDir()+"/data", door, headerOff)
	runReceiver(t, in)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer a-token-with-role-send")
	const size, most = 512 << 20, 128 << 20
	for _, name := range []string{"gzip", "zstd"} {
		var bomb bytes.Buffer
		z, err := encoding.GetCompressor(name).Compress(&bomb)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(z, zeros{}, size); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		//lint:ignore SA1019 the other way to choose a compressor is one for the whole process, for the server as well
		_, client, methods := serveGRPC(t, in, grpc.WithCompressor(already{name, bomb.Bytes()}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		// An empty message would not be compressed.
		message := &colpb.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{SchemaUrl: "x"}}}
		err = client.Invoke(ctx, methods[0], message, &colpb.ExportMetricsServiceResponse{}, grpc.MaxCallSendMsgSize(size))
		runtime.ReadMemStats(&after)
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s of %d bytes: %v, want ResourceExhausted", name, bomb.Len(), err)
		}
		took := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s of %d KiB, %d MiB decompressed: %d MiB were taken", name, bomb.Len()>>10, size>>20, took>>20)
		if took > most {
			t.Errorf("%s took %d MiB, at most %d are right", name, took>>20, most>>20)
		}
	}
	// Headers of a request are bounded as well; the client keeps to what the server told it.
	_, client, methods := serveGRPC(t, in)
	if err := client.Invoke(ctx, methods[0], &colpb.ExportMetricsServiceRequest{}, &colpb.ExportMetricsServiceResponse{}); err != nil {
		t.Errorf("after the bombs: %v", err)
	}
	large := metadata.AppendToOutgoingContext(ctx, "x", strings.Repeat("x", 1<<20))
	if err := client.Invoke(large, methods[0], &colpb.ExportMetricsServiceRequest{}, &colpb.ExportMetricsServiceResponse{}); err == nil {
		t.Error("a header of 1 MiB was taken")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// already is a compressor that sends what was compressed before, whatever the message is.
type already struct {
	name    string
	message []byte
}

func (a already) Type() string { return a.name }

func (a already) Do(w io.Writer, _ []byte) error {
	_, err := w.Write(a.message)
	return err
}
