package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// nginxPage is the size of the page that StartNginx serves, in bytes.
const nginxPage = 3000

// NginxLarge is the path of a file that StartNginx serves, and its size in bytes.
const (
	NginxLarge      = "/large"
	NginxLargeBytes = 48 << 20
)

// StartNginx serves a directory with sendfile; the page / has a few kilobytes.
func StartNginx(ctx context.Context) (*Server, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp("", "outsight-nginx-")
	if err != nil {
		return nil, err
	}
	configuration := fmt.Sprintf(`
daemon off; user root; worker_processes 2; pid %[1]s/pid; error_log stderr warn;
events { worker_connections 10000; }
http {
	access_log off; sendfile on; keepalive_requests 100000000; keepalive_timeout 600s;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server { listen %[2]s backlog=4096; root %[1]s; }
}`, directory, address)
	for name, text := range map[string][]byte{"nginx.conf": []byte(configuration), "index.html": make([]byte, nginxPage)} {
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o644); err != nil {
			os.RemoveAll(directory)
			return nil, err
		}
	}
	large := filepath.Join(directory, NginxLarge)
	if err := errors.Join(os.WriteFile(large, nil, 0o644), os.Truncate(large, NginxLargeBytes)); err != nil {
		os.RemoveAll(directory)
		return nil, err
	}
	return start(ctx, address, listens(address), func() { os.RemoveAll(directory) },
		withFiles(ctx, "nginx", "-p", directory, "-c", filepath.Join(directory, "nginx.conf")))
}

// HTTP lets Go's HTTP client ask nginx.
func HTTP(ctx context.Context, l Load) ([]Truth, error) {
	server, err := StartNginx(ctx)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	var b books
	err = crowd(ctx, l, func(context.Context) (session, error) {
		return &httpSession{books: &b, url: fmt.Sprintf("http://%s/", server.Address), transport: &http.Transport{
			DisableKeepAlives: l.OneRequestEach,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				return b.dial(ctx, address)
			},
		}}, nil
	})
	return []Truth{{Service: server.Address, Client: b.total(), Server: b.total()}}, err
}

type httpSession struct {
	books     *books
	url       string
	transport *http.Transport
}

func (s *httpSession) ask(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, "GET", s.url, nil)
	if err != nil {
		return err
	}
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); err != nil || n != nginxPage || response.StatusCode != 200 {
		return fmt.Errorf("nginx answered %s with %d bytes: %w", response.Status, n, err)
	}
	s.books.requests.Add(1)
	return nil
}

func (s *httpSession) close() { s.transport.CloseIdleConnections() }

// HTTPClient returns what opens connections that ask an HTTP server for its page /.
func HTTPClient(server *Server) func(context.Context) (Asker, error) {
	return func(ctx context.Context) (Asker, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", server.Address.String())
		if err != nil {
			return nil, err
		}
		return &httpAsker{Conn: conn, reader: bufio.NewReader(conn)}, nil
	}
}

type httpAsker struct {
	net.Conn
	reader *bufio.Reader
}

func (a *httpAsker) Ask() error {
	if _, err := io.WriteString(a, "GET / HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(a.reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && n != nginxPage {
		err = fmt.Errorf("nginx answered %s with %d bytes", response.Status, n)
	}
	return err
}
