package kubernetes

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// certificate makes a key and a certificate for it, signed by itself.
func certificate(t *testing.T, usage x509.ExtKeyUsage) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outsight"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage}, IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"kubernetes.default.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func write(t *testing.T, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const kubeconfigShape = `
apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: elsewhere, context: {cluster: other, user: other}}
- {name: here, context: {cluster: mine, user: me, namespace: shop}}
clusters:
- {name: other, cluster: {server: "https://192.0.2.1"}}
- name: mine
  cluster: {server: %q, %s}
users:
- name: me
  user: {%s}
`

// TestKubeconfig logs in at a server that wants TLS, and a client's certificate or a token.
func TestKubeconfig(t *testing.T) {
	s := newServer(t)
	serverCert, serverKey := certificate(t, x509.ExtKeyUsageServerAuth)
	clientCert, clientKey := certificate(t, x509.ExtKeyUsageClientAuth)
	pair, err := tls.X509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(clientCert)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 && r.Header.Get("Authorization") != "Bearer secret" {
			text(401, `{"message":"Unauthorized","reason":"Unauthorized","code":401}`)(0, w, r)
			return
		}
		if r.ProtoMajor != 2 {
			t.Errorf("%s came by %s", r.URL, r.Proto)
		}
		s.ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // some of the clients below refuse the server
	s.StartTLS()
	t.Cleanup(s.stop)

	directory := t.TempDir()
	encoded := base64.StdEncoding.EncodeToString
	ca := "certificate-authority-data: " + encoded(serverCert)
	write(t, filepath.Join(directory, "ca.pem"), serverCert)
	write(t, filepath.Join(directory, "token"), []byte("secret\n"))
	write(t, filepath.Join(directory, "client.pem"), clientCert)
	write(t, filepath.Join(directory, "client.key"), clientKey)
	certificates := "client-certificate-data: " + encoded(clientCert) + ", client-key-data: " + encoded(clientKey)
	for name, one := range map[string]struct{ cluster, user, failure string }{
		"client certificate": {ca, certificates, ""},
		"certificate in files": {"certificate-authority: ca.pem", "client-certificate: client.pem, client-key: client.key",
			""},
		"token":              {ca, "token: secret", ""},
		"token in a file":    {ca, "tokenFile: token", ""},
		"insecure":           {"insecure-skip-tls-verify: true", "token: secret", ""},
		"name of the server": {ca + ", tls-server-name: kubernetes.default.svc", "token: secret", ""},
		"wrong token":        {ca, "token: guess", "401 Unauthorized"},
		"unknown authority":  {"tls-server-name: x", "token: secret", "certificate"},
		"wrong server name":  {ca + ", tls-server-name: other.example", "token: secret", "other.example"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, filepath.Join(directory, "config"), fmt.Appendf(nil, kubeconfigShape, s.URL, one.cluster, one.user))
			config, err := ReadKubeconfig(path)
			if err != nil {
				t.Fatal(err)
			}
			c := runs(t, config, Options{}, quick)
			<-c.Synced()
			if f := c.feature("pods"); one.failure != "" {
				if f.State != model.FeatureAbsent || !strings.Contains(f.Reason, one.failure) {
					t.Errorf("pods are %+v, want %q", f, one.failure)
				}
			} else if f.State != model.FeatureWorks || c.Pods() != 2 {
				t.Errorf("pods are %+v, %d are known", f, c.Pods())
			}
		})
	}
}

func TestKubeconfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		"": `no context ""`, "\t": "yaml", "current-context: x": `no context "x"`,
		fmt.Sprintf(kubeconfigShape, "https://h", "a: 1",
			"exec: {command: aws}"): `apiVersion is ""`,
		fmt.Sprintf(kubeconfigShape, "https://h", "a: 1",
			"exec: {apiVersion: client.authentication.k8s.io/v1}"): "none is named",
		fmt.Sprintf(kubeconfigShape, "https://h", "a: 1",
			"exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Always}"): "nobody is here",
		fmt.Sprintf(kubeconfigShape, "https://h", "a: 1",
			"auth-provider: {name: gcp}"): "auth-provider",
		fmt.Sprintf(kubeconfigShape, "https://h", "a: 1",
			"username: admin"): "password",
		fmt.Sprintf(kubeconfigShape, "not a url", "a: 1",
			"token: x"): "want a URL",
		fmt.Sprintf(kubeconfigShape, "https://h", "certificate-authority: absent.pem",
			"token: x"): "absent.pem",
		fmt.Sprintf(kubeconfigShape, "https://h", "certificate-authority-data: '%'",
			"token: x"): "base64",
		fmt.Sprintf(kubeconfigShape, "https://h", "a: 1",
			"client-certificate-data: aGk="): "client's certificate",
		strings.Replace(fmt.Sprintf(kubeconfigShape, "https://h", "a: 1", "token: x"), "name: me\n", "name: somebody\n",
			1): `no user "me"`,
	} {
		if _, err := parseKubeconfig([]byte(text), t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestInCluster(t *testing.T) {
	directory := t.TempDir()
	if _, err := InCluster(directory); !errors.Is(err, ErrNotInCluster) {
		t.Errorf("without an account: %v", err)
	}
	write(t, filepath.Join(directory, "token"), []byte("secret"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "6443")
	if _, err := InCluster(directory); err == nil || errors.Is(err, ErrNotInCluster) {
		t.Errorf("without a certificate: %v", err)
	}
	write(t, filepath.Join(directory, "ca.crt"), []byte("pem"))
	c, err := InCluster(directory)
	if err != nil || c.Server != "https://[fd00::1]:6443" || c.TokenFile != filepath.Join(directory, "token") ||
		string(c.CA) != "pem" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := New(c, Options{}); err == nil {
		t.Error("a certificate that is none was taken")
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(kubeconfigShape, "https://192.0.2.1:6443", "certificate-authority-data: aGk=", "token: x")))
	f.Add([]byte(fmt.Sprintf(kubeconfigShape, "http://h", "insecure-skip-tls-verify: true", "exec: {command: x}")))
	f.Add([]byte("contexts: [{name: a, context: {}}]\ncurrent-context: a"))
	directory := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseKubeconfig(text, directory)
		if err == nil && c.Server == "" {
			t.Errorf("there is no server and no error: %+v", c)
		}
	})
}

// FuzzWatch feeds a watch with foreign bytes. The tables keep their bounds and agree with each other,
// and nothing is left of pods that are gone for long.
func FuzzWatch(f *testing.F) {
	for _, name := range []string{"10-pods-watch", "11-pods-watch-from-1", "15-pods-watch-initial-events"} {
		_, _, body := recorded(f, name)
		f.Add([]byte(body))
		f.Add([]byte(body[:len(body)*2/3]))
	}
	f.Add([]byte(`{"type":"ERROR","object":` + gone + `}`))
	f.Add([]byte(`{"type":"ADDED","object":{"metadata":{"uid":"u","annotations":{"kubernetes.io/config.mirror":"u"}},"status":{"podIP":"::ffff:1.2.3.4"}}} 1 "x" []`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := New(Config{Server: "http://127.0.0.1:1"}, Options{MaxPods: 3, MaxObjectBytes: 8192})
		if err != nil {
			t.Fatal(err)
		}
		r := c.reflectors[0]
		r.version = "1"
		events := newCutter(bytes.NewReader(text), c.options.MaxObjectBytes)
		for {
			event, err := events.next()
			if errors.Is(err, errTooLarge) {
				continue
			}
			if err != nil {
				break
			}
			if len(event) > c.options.MaxObjectBytes {
				t.Fatalf("an event has %d bytes", len(event))
			}
			if r.event(event) != nil {
				break
			}
		}
		if len(c.pods.items)+len(c.retired) > 3 || len(c.entryOf) != len(c.pods.items)+len(c.retired) {
			t.Errorf("%d pods, %d retired, %d held", len(c.pods.items), len(c.retired), len(c.entryOf))
		}
		for _, h := range c.entryOf {
			c.pods.remove(h.uid)
		}
		c.clock(time.Hour)
		c.sweep()
		if n := len(c.byUID) + len(c.byName) + len(c.byContainer) + len(c.byAddress) + len(c.byHostPort) + len(c.onNode) +
			len(c.entryOf); n != 0 {
			t.Errorf("%d entries are left of nothing", n)
		}
	})
}

// clock moves a cluster into the future.
func (c *Cluster) clock(by time.Duration) {
	before := c.now
	c.now = func() time.Time { return before().Add(by) }
}

// FuzzList holds the cutter against encoding/json: what that accepts as a list has the same items.
func FuzzList(f *testing.F) {
	for _, name := range []string{"02-pods-page1", "04-pods-list", "05-services-list", "06-endpointslices-list",
		"14-pods-metadata-only"} {
		_, _, body := recorded(f, name)
		f.Add([]byte(body))
	}
	f.Add([]byte(`{"items":null,"metadata":{"resourceVersion":"1"}}`))
	f.Add([]byte(`{"a":"}\"{","items":[1,"x,]",{"y":[{}]},[],true , -1.5e3],"metadata":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var items [][]byte
		_, err := newCutter(bytes.NewReader(text), 1<<20).list(func(item []byte) error {
			items = append(items, bytes.Clone(item))
			return nil
		})
		if !json.Valid(text) || bytes.TrimSpace(text)[0] != '{' {
			return
		}
		if err != nil && !strings.Contains(err.Error(), "cannot unmarshal") {
			t.Fatalf("%q: %v", text, err)
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.Token()
		var want [][]byte
		for decoder.More() && err == nil {
			key, _ := decoder.Token()
			var value json.RawMessage
			if decoder.Decode(&value) != nil {
				return
			}
			var list []json.RawMessage
			if key == "items" && value[0] == '[' && json.Unmarshal(value, &list) == nil {
				for _, one := range list {
					want = append(want, one)
				}
			}
		}
		if err != nil {
			return
		}
		if len(items) != len(want) {
			t.Fatalf("%q has %d items, want %d", text, len(items), len(want))
		}
		for i := range items {
			if !bytes.Equal(items[i], want[i]) {
				t.Errorf("item %d is %q, want %q", i, items[i], want[i])
			}
		}
	})
}

func TestCutText(t *testing.T) {
	_, _, body := recorded(t, "04-pods-list")
	for cut := range len(body) - 1 {
		if cut > 200 && cut%97 != 0 && cut < len(body)-50 {
			continue
		}
		_, err := newCutter(strings.NewReader(body[:cut]), 1<<20).list(func([]byte) error { return nil })
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("a list that was cut after %d bytes: %v", cut, err)
		}
	}
}

// TestOpen: what was asked for and cannot be had is an error, and what was not is a reason.
func TestOpen(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for mode, want := range map[string]string{Auto: "no service account", "": "no service account",
		Off: "--kubernetes is off"} {
		c, f, err := Open(mode, Options{})
		if c != nil || err != nil || !strings.Contains(f.Reason, want) || f.Remedy == "" || f.State == model.FeatureWorks {
			t.Errorf("%q: %v, %+v, %v", mode, c, f, err)
		}
	}
	for mode, want := range map[string]string{InPod: "no service account", "/no/such/file": "/no/such/file"} {
		if c, _, err := Open(mode, Options{}); c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", mode, c, err)
		}
	}
	path := write(t, filepath.Join(t.TempDir(), "config"),
		fmt.Appendf(nil, kubeconfigShape, "http://192.0.2.1", "insecure-skip-tls-verify: true", "token: x"))
	if c, err := OpenNode(path, "", nil); err != nil || !strings.HasPrefix(c.reflectors[0].selector, "spec.nodeName=") ||
		len(c.reflectors) != 1 {
		t.Errorf("a node: %v, %v", c, err)
	}
}

// TestCheck is what doctor asks: each resource is tried once, and no more is asked of a server that
// does not answer.
func TestCheck(t *testing.T) {
	s := serve(t)
	s.lists[servicesPath] = replay(t, "12-forbidden")
	c, err := New(Config{Server: s.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range c.Check(t.Context()) {
		got = append(got, f.Name+" "+string(f.State))
	}
	if want := "kubernetes/pods works, kubernetes/services absent, kubernetes/endpointslices works, kubernetes/nodes " +
		"works"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
	if q := s.requests("list", podsPath)[0]; q.Get("limit") != "1" {
		t.Errorf("asked with %v", q)
	}
	s.Close()
	if all := c.Check(t.Context()); len(all) != 1 || all[0].State != model.FeatureAbsent || all[0].Reason == "" ||
		all[0].Remedy == "" {
		t.Errorf("of a server that is gone: %+v", all)
	}
}
