package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"outsight/internal/access"
	"outsight/internal/api"
	"outsight/internal/ingest"
)

// No password of the queue's cluster may stand among the arguments, where every user of the host can read it.
func TestNoPasswordInArguments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nats")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	f := func(url, file, want, fault string) {
		t.Helper()
		flags := receiveFlags{natsFile: file, header: headerOff, inFlight: ingest.LeastInFlight}
		flags.nats.URL = url
		err := flags.check()
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("--nats %q --nats-file %q: %v, want %q", url, file, err, fault)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the message tells the password: %v", err)
		}
		if err == nil && flags.nats.URL != want {
			t.Errorf("--nats %q --nats-file %q: %q, want %q", url, file, flags.nats.URL, want)
		}
	}
	write("nats://server:hunter2@a:4222,nats://server:hunter2@b:4222\n", 0o600)
	f("nats://a:4222,nats://b:4222", "", "nats://a:4222,nats://b:4222", "")
	f("", path, "nats://server:hunter2@a:4222,nats://server:hunter2@b:4222", "")
	f("nats://server:hunter2@a:4222", "", "", "--nats-file")
	f("a:4222, server:hunter2@b:4222", "", "", "--nats-file")
	f("nats://hunter2@a:4222", "", "", "--nats-file")
	f("nats://server:hun%ter2@a:4222", "", "", "--nats-file")
	f("nats://a:4222", path, "", "want one of them")
	write("nats://server:hunter2@a:4222\n", 0o666)
	f("", path, "", "can be written by others")
	flags := receiveFlags{header: headerOff}
	flags.nats.Credentials = path
	if err := flags.check(); err == nil || !strings.Contains(err.Error(), "can be written by others") {
		t.Errorf("credentials that everybody may write: %v", err)
	}
	var usage usageError
	flags = receiveFlags{header: headerOff}
	flags.nats.URL = "nats://a:b@c"
	if err := flags.check(); !errors.As(err, &usage) {
		t.Errorf("a password is no wrong usage: %v", err)
	}
}

// Nothing that a client says reaches a header of the answer as a line of its own, in any of the servers; and what says
// its length in two ways is not taken.
func TestNoHeaderInjection(t *testing.T) {
	kept, in := openReceiverIn(t, t.TempDir()+"/data", access.Access{}, headerOptional)
	log := slog.New(slog.DiscardHandler)
	var door access.Access
	for name, handler := range map[string]http.Handler{
		"page": serveFrom(kept, door, headerOptional, api.Options{Metrics: in.metrics(), Logger: log}),
		"OTLP": door.Senders(in.ingest.Handler()),
	} {
		server := httptest.NewUnstartedServer(handler)
		server.Config = access.Server(handler, log)
		server.Start()
		raw := func(request string) (*http.Response, string) {
			t.Helper()
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%s: %q: %v", name, request, err)
			}
			defer answer.Body.Close()
			body, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
			return answer, string(body)
		}
		const evil = "%0d%0aSet-Cookie:%20evil=1%0d%0a%0d%0a<script>"
		for _, path := range []string{
			"/" + evil, "//" + evil, "/x/../" + evil, "/api/" + evil, "/api/v1/query?query=" + evil, "/api/v1/label/" + evil +
				"/values", "/api/v1/series?match[]=" + evil,
			"/api/outsight/graph?groupBy=" + evil, "/api/outsight/graph?from=" + evil, "/api/outsight/flight?last=" + evil,
			"/api/outsight/recordings?number=" + evil,
			"/v1/metrics", "/v1/metrics/../" + evil, "/metrics?" + evil,
		} {
			for _, method := range []string{"GET", "POST", "OPTIONS", "HEAD"} {
				answer, _ := raw(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Scope-OrgID: "+
					"shop\r\nContent-Type: text/%s\r\n\r\n", method, path, "evil"))
				if answer.Header.Get("Set-Cookie") != "" {
					t.Errorf("%s: %s %s set a header: %v", name, method, path, answer.Header)
				}
				for key, values := range answer.Header {
					for _, v := range values {
						if !httpguts.ValidHeaderFieldValue(v) {
							t.Errorf("%s: %s %s answered %s: %q", name, method, path, key, v)
						}
					}
				}
				if strings.HasPrefix(answer.Header.Get("Location"), "//") ||
					strings.Contains(answer.Header.Get("Location"), "://") {
					t.Errorf("%s: %s %s leads to %q", name, method, path, answer.Header.Get("Location"))
				}
			}
		}
		for what, head := range map[string]string{
			"a bare carriage":     "X-Scope-OrgID: a\rb",
			"two lengths":         "Content-Length: 5\r\nContent-Length: 6",
			"another encoding":    "Transfer-Encoding: xchunked",
			"a folded name":       "Transfer-Encoding : chunked",
			"two hosts":           "Host: evil.example",
			"chunked, not last":   "Transfer-Encoding: chunked, identity",
			"a length that is no": "Content-Length: +5",
		} {
			answer, body := raw("POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + head +
				"\r\n\r\nquery=1")
			if answer.StatusCode/100 == 2 || answer.StatusCode/100 == 3 {
				t.Errorf("%s: %s was taken: %d %.200s", name, what, answer.StatusCode, body)
			}
		}
		server.Close()
	}
}
