package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
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

// serveGRPC serves what takes OTLP over gRPC, and returns all its methods.
func serveGRPC(t *testing.T, in *receiver) (l *access.Listener, client *grpc.ClientConn, methods []string) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = in.listeners.Limit(inner, "otlp-grpc", access.SenderLimits)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- in.ingest.ServeGRPC(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	methods = []string{colpb.MetricsService_Export_FullMethodName}
	client, err = grpc.NewClient(inner.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return l, client, methods
}

// Only a token with the role send brings metrics in: by HTTP, and by every method of gRPC, also those that are not
// there.
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
				if code := status.Code(err); method == methods[0] && code != codes.OK || method != methods[0] &&
					code != codes.Unimplemented {
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

// Headers of a request are bounded.
func TestGRPCHeaders(t *testing.T) {
	door, _ := doorWithRoles(t)
	_, in := openReceiverIn(t, t.TempDir()+"/data", door, headerOff)
	runReceiver(t, in)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer a-token-with-role-send")
	_, client, methods := serveGRPC(t, in)
	if err := client.Invoke(ctx, methods[0], &colpb.ExportMetricsServiceRequest{},
		&colpb.ExportMetricsServiceResponse{}); err != nil {
		t.Errorf("a request with few headers: %v", err)
	}
	large := metadata.AppendToOutgoingContext(ctx, "x", strings.Repeat("x", 1<<20))
	if err := client.Invoke(large, methods[0], &colpb.ExportMetricsServiceRequest{},
		&colpb.ExportMetricsServiceResponse{}); err == nil {
		t.Error("a header of 1 MiB was taken")
	}
}
