package net

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"debug/elf"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/time/rate"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// certificate writes a self-signed certificate and its key.
func certificate(t testing.TB) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outsight"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed},
		key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// transactions are those of a service at one end, whatever was asked.
func transactions(t *testing.T, p *Net, port uint16, role model.Role) (n uint64) {
	t.Helper()
	all, err := p.ReadEdges()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Key.Service.Port() == port && e.Key.Role == role {
			n += e.Counters.Transactions()
		}
	}
	return n
}

// expectTLS lets clients ask a server twice: with the option both ends name the requests as they are,
// without it they name none. The transactions are those requests and, either way, a few of each connection's
// handshake: how many turns the ends see in it depends on what they read at once.
func expectTLS(t *testing.T, port uint16, connections uint64, ask func(), want map[string]uint64) {
	t.Helper()
	requests := uint64(0)
	for _, n := range want {
		requests += n
	}
	check := func(p *Net, option string) {
		t.Helper()
		for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
			n := kerneltest.ReadUntil(func() uint64 { return transactions(t, p, port, role) }, func(n uint64) bool {
				return n >= requests
			})
			if n < requests || n > requests+3*connections {
				t.Errorf("%s the %v counts %d transactions, want %d and at most three for each of %d handshakes",
					option, role, n, requests, connections)
			}
		}
	}
	with := open(t, Options{TLS: true})
	for _, f := range with.Features() {
		if (f.Name == openSSL.feature.Name || f.Name == goTLS.feature.Name) && f.State != model.FeatureWorks {
			t.Errorf("%+v", f)
		}
	}
	ask()
	expect(t, with, port, want)
	check(with, "with the option")
	if err := with.Close(); err != nil {
		t.Fatal(err)
	}
	without := open(t, Options{})
	ask()
	check(without, "without the option")
	for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
		if named := asked(t, without, port, role); len(named) > 0 {
			t.Errorf("without the option the %v has named %v", role, named)
		}
	}
}

const pythonServer = `
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_GET(self):
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", "3000")
        self.end_headers()
        self.wfile.write(b"x" * 3000)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
if len(sys.argv) > 4: context.maximum_version = ssl.TLSVersion.TLSv1_2
class Server(http.server.ThreadingHTTPServer):
    def get_request(self):
        sock, address = super().get_request()
        return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), address
    def handle_error(self, *_): pass
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()`

const pythonClient = `
import http.client, ssl, sys
context = ssl._create_unverified_context()
for client in range(4):
    c = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), context=context)
    def ask(method, path, body=None):
        c.request(method, path, body)
        c.getresponse().read()
    for i in range(10): ask("GET", "/users/%d/orders?page=%d" % (1000 + i, i))
    ask("GET", "/missing")
    ask("POST", "/orders", b"y" * 20000)
    c.close()`

func TestTLSOfPython(t *testing.T) {
	cert, key := certificate(t)
	for _, version := range []string{"1.3", "1.2"} {
		t.Run(version, func(t *testing.T) {
			port := freePort(t)
			number := strconv.Itoa(int(port))
			arguments := []string{"-c", pythonServer, number, cert, key}
			if version == "1.2" {
				arguments = append(arguments, version)
			}
			daemon(t, port, "python3", arguments...)
			ask := func() { execute(t, "python3", "-c", pythonClient, number) }
			expectTLS(t, port, 4, ask, map[string]uint64{"GET /users/{}/orders 2xx": 40, "GET /missing 4xx": 4,
				"POST /orders 5xx": 4})
		})
	}
}

func TestTLSOfNginx(t *testing.T) {
	cert, key := certificate(t)
	port, dir := freePort(t), t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	os.WriteFile(config, fmt.Appendf(nil, `
daemon off; worker_processes 1; pid %[1]s/pid; error_log stderr; user root;
events {}
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server {
		listen 127.0.0.1:%[2]d ssl; root %[1]s; ssl_certificate %[3]s; ssl_certificate_key %[4]s;
		location /users { return 200 "somebody"; }
		location /fail { return 503; }
	}
}`, dir, port, cert, key), 0o644)
	os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20), 0o644)
	daemon(t, port, "/usr/sbin/nginx", "-c", config, "-p", dir)
	base := "https://" + address(port)
	expectTLS(t, port, 5, func() {
		for i := range 5 { // three on one connection
			execute(t, "curl", "-sk", "--http1.1", "-o", "/dev/null", fmt.Sprintf("%s/users/%d", base, i), "-o",
				"/dev/null", base+"/big", "-o", "/dev/null", base+"/fail")
		}
	}, map[string]uint64{"GET /users/{} 2xx": 5, "GET /big 2xx": 5, "GET /fail 5xx": 5})
}

func TestTLSOfGo(t *testing.T) {
	cert, key := certificate(t)
	peer := filepath.Join(t.TempDir(), "tlspeer")
	execute(t, "go", "build", "-o", peer, "./testdata/tlspeer")
	port := freePort(t)
	daemon(t, port, peer, "serve", address(port), cert, key)
	ask := func() { execute(t, peer, "ask", address(port), "8") }
	expectTLS(t, port, 8, ask, map[string]uint64{"GET /users/{}/orders 2xx": 80, "DELETE /fail 5xx": 8})
}

// Programs that begin after the probes are found, and their probes go with them.
func TestTLSProbesComeAndGo(t *testing.T) {
	cert, key := certificate(t)
	peer := filepath.Join(t.TempDir(), "tlspeer")
	execute(t, "go", "build", "-o", peer, "./testdata/tlspeer")
	stripped := peer + "-stripped"
	execute(t, "go", "build", "-ldflags=-s -w", "-o", stripped, "./testdata/tlspeer")
	p := open(t, Options{TLS: true})
	probed := func() (used, refused uint64) {
		for _, d := range p.Drops() {
			switch d.Name {
			case "tls_binaries":
				used = d.Used
			case "tls_binaries_refused":
				refused = d.Count
			}
		}
		return used, refused
	}
	before, _ := probed()
	t.Run("while they run", func(t *testing.T) {
		port := freePort(t)
		daemon(t, port, peer, "serve", address(port), cert, key)
		other := freePort(t)
		daemon(t, other, stripped, "serve", address(other), cert, key)
		p.tls.look()
		if used, refused := probed(); used != before+1 || refused == 0 {
			t.Errorf("%d binaries are probed and %d refused, want %d and the one without symbols", used, refused, before+1)
		}
		execute(t, peer, "ask", address(port), "1")
		expect(t, p, port, map[string]uint64{"GET /users/{}/orders 2xx": 10, "DELETE /fail 5xx": 1})
	})
	p.tls.look()
	p.tls.look()
	if used, _ := probed(); used != before {
		t.Errorf("%d binaries are probed after their programs have ended, want %d", used, before)
	}
}

// lookInto looks into a file as the watcher does.
func lookInto(t testing.TB, path string, functions findFunctions) ([]tlsFunction, error) {
	t.Helper()
	w := &tlsWatcher{programs: make(map[string]*ebpf.Program)}
	for _, l := range []tlsLibrary{openSSL, goTLS} {
		for _, pair := range l.functions {
			w.programs[pair[0]], w.programs[pair[1]] = new(ebpf.Program), new(ebpf.Program)
		}
	}
	file, err := openInRoot("/", path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return w.read(&tlsShare{reading: rate.NewLimiter(tlsReading, tlsReadingBurst)}, file, functions)
}

func TestGoFunctionsAreFound(t *testing.T) {
	peer := filepath.Join(t.TempDir(), "tlspeer")
	execute(t, "go", "build", "-o", peer, "./testdata/tlspeer")
	found, err := lookInto(t, peer, goFunctions)
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[string]int)
	for _, f := range found {
		count[f.program]++
	}
	if count["go_write"] != 1 || count["go_read"] != 1 || count["go_write_end"] == 0 || count["go_read_end"] == 0 {
		t.Errorf("found %v", count)
	}
	execute(t, "go", "build", "-ldflags=-s -w", "-o", peer, "./testdata/tlspeer")
	if _, err := lookInto(t, peer, goFunctions); err == nil || errors.Is(err, errNoTLS) {
		t.Errorf("of a program without symbols: %v", err)
	}
	for _, other := range []string{"/bin/sh", "/etc/passwd"} {
		if _, err := lookInto(t, other, goFunctions); !errors.Is(err, errNoTLS) {
			t.Errorf("%s: %v", other, err)
		}
	}
}

// A look may take long, and a reading does not wait for it.
func TestReadingDoesNotWaitForALook(t *testing.T) {
	w := tlsWatcher{calls: new(lruTable), connections: new(lruTable)}
	w.lock.Lock()
	defer w.lock.Unlock()
	done := make(chan []model.Drop, 1)
	go func() { done <- w.drops() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the drops of a watcher that looks cannot be read")
	}
}

// A file with holes claims a table of symbols of a size that must not be read.
func TestHugeSymbolsAreNotRead(t *testing.T) {
	peer := filepath.Join(t.TempDir(), "tlspeer")
	execute(t, "go", "build", "-o", peer, "./testdata/tlspeer")
	program, err := os.ReadFile(peer)
	if err != nil {
		t.Fatal(err)
	}
	order := binary.LittleEndian
	found := false
	for i := range int(order.Uint16(program[60:])) {
		section := program[order.Uint64(program[40:])+uint64(i)*64:]
		if elf.SectionType(order.Uint32(section[4:])) == elf.SHT_SYMTAB {
			order.PutUint64(section[32:], maxTLSTable+24)
			found = true
		}
	}
	if !found {
		t.Fatal("the program has no symbols")
	}
	if err := os.WriteFile(peer, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := lookInto(t, peer, goFunctions); !errors.Is(err, errTLSTooLarge) {
		t.Errorf("of a program with %d bytes of symbols: %v", maxTLSTable+24, err)
	}
	if err := os.Truncate(peer, maxTLSFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := lookInto(t, peer, goFunctions); !errors.Is(err, errTLSTooLarge) {
		t.Errorf("of a program of %d bytes: %v", maxTLSFile+1, err)
	}
}

func TestReturnsAreFound(t *testing.T) {
	f := func(code string, want string) {
		t.Helper()
		ends, err := findReturns([]byte(code))
		if got := fmt.Sprint(ends, err); got != want {
			t.Errorf("% x: got %s, want %s", code, got, want)
		}
	}
	f("\x55\x48\x89\xe5\x5d\xc3", "[5] <nil>")
	f("\xb8\xc3\xc3\xc3\xc3\xc3\x90\xc3", "[5 7] <nil>") // bytes within an instruction are none
	f("\x90", "[] it does not return")
	f("\xc3\xb8\xc3", "[] instruction at 1: not known")
	f("\xc3\x06", "[] instruction at 1: unrecognized instruction")
	f("", "[] it does not return")
}

// A library in a layer that two containers share is one binary, which is probed once.
func TestLayersAreSharedBinaries(t *testing.T) {
	layer, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(layer, "libssl.so.3"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	var ids []binaryID
	for _, name := range []string{"first", "second"} {
		own, root := filepath.Join(dir, name+"-layer"), filepath.Join(dir, name)
		execute(t, "mkdir", own, root)
		execute(t, "mount", "-t", "overlay", "overlay", "-o", "lowerdir="+own+":"+layer, root)
		t.Cleanup(func() { execute(t, "umount", root) })
		file, err := openInRoot(root, "/libssl.so.3")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		ids = append(ids, file.id)
	}
	if ids[0] != ids[1] {
		t.Errorf("one file in two containers is %+v and %+v", ids[0], ids[1])
	}
}

func FuzzReturns(f *testing.F) {
	f.Add([]byte("\xb8\xc3\xc3\xc3\xc3\xc3\x90\xc3"))
	f.Fuzz(func(t *testing.T, code []byte) {
		ends, err := findReturns(code)
		for _, at := range ends {
			if err != nil || at >= uint64(len(code)) {
				t.Errorf("%v %v", ends, err)
			}
		}
	})
}

func FuzzMappedOpenSSL(f *testing.F) {
	f.Add("7f1c00000000-7f1c00001000 r-xp 00020000 08:01 1234 /usr/lib/x86_64-linux-gnu/libssl.so.3\n")
	f.Add("7f1c00000000-7f1c00001000 r--p 00000000 08:01 1234 /usr/lib/libssl.so.1.1\n7f1c00001000-7f1c00002000 r-xp 00001000 00:3c 99 /opt/libssl.so.1.1 (deleted)\n")
	f.Fuzz(func(t *testing.T, maps string) {
		found, err := readMappings(bufio.NewReaderSize(strings.NewReader(maps), maxMappingLine))
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			t.Error(err)
		}
		for _, m := range found.openSSL {
			if !strings.Contains(m.path, "/libssl.so") || !strings.Contains(maps, m.path) {
				t.Errorf("%q", m.path)
			}
		}
	})
}

const pythonWriter = `
import ssl, sys, time
def pair():
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl._create_unverified_context()
    server.load_cert_chain(sys.argv[1], sys.argv[2])
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    s, c = server.wrap_bio(a, b, server_side=True), client.wrap_bio(b, a)
    for _ in range(4):
        for end in (c, s):
            try: end.do_handshake()
            except ssl.SSLWantReadError: pass
    return s, c
s, c = pair()
print("ready", flush=True)
sys.stdin.readline()
text, n = b"x" * 200, 100000
begin = time.perf_counter_ns()
for _ in range(n):
    c.write(text)
    s.read(200)
print((time.perf_counter_ns() - begin) / n / 2)`

// BenchmarkTLS is the time of a call of OpenSSL that writes or reads 200 bytes, without a socket,
// without and with the option.
func BenchmarkTLS(b *testing.B) {
	cert, key := certificate(b)
	for _, on := range []bool{false, true, false, true} {
		b.Run(fmt.Sprintf("tls=%v", on), func(b *testing.B) {
			cmd := exec.Command("python3", "-c", pythonWriter, cert, key)
			in, err := cmd.StdinPipe()
			if err != nil {
				b.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			lines.Scan()
			p := New(Options{TLS: on})
			if err := p.Open(kerneltest.Kernel(b)); err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			fmt.Fprintln(in)
			lines.Scan()
			ns, err := strconv.ParseFloat(lines.Text(), 64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(ns, "ns/call")
			if err := cmd.Wait(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
