package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outsight/internal/model"
)

// script makes a plugin: a program that counts its runs in a file and then does the rest.
func script(t *testing.T, directory, rest string) (runs func() int) {
	t.Helper()
	path := filepath.Join(directory, "login.sh")
	text := "#!/bin/sh\ncd " + directory + "\necho run >> runs\n" + rest
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() int {
		text, _ := os.ReadFile(filepath.Join(directory, "runs")) // it has not run yet
		return strings.Count(string(text), "run\n")
	}
}

// execUser is a kubeconfig's user who logs in by the script.
const execUser = `exec: {apiVersion: client.authentication.k8s.io/%s, command: ./login.sh, args: [one, "two words"], env: [{name: REGION, value: here}], provideClusterInfo: true, installHint: "ask an administrator for it"}`

// loggedIn is a cluster that is reached by a kubeconfig of a user.
func loggedIn(t *testing.T, directory, server, cluster, user string) *Cluster {
	t.Helper()
	config, err := ReadKubeconfig(write(t, filepath.Join(directory, "config"),
		fmt.Appendf(nil, kubeconfigShape, server, cluster, user)))
	if err != nil {
		t.Fatal(err)
	}
	return runs(t, config, Options{}, quick)
}

// guarded is an API server that lets in who has the token of now.
func guarded(t *testing.T, token *atomic.Pointer[string]) *apiServer {
	s := newServer(t)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if want := token.Load(); r.Header.Get("Authorization") != "Bearer "+*want {
			text(401, `{"message":"Unauthorized","reason":"Unauthorized","code":401}`)(0, w, r)
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(s.stop)
	return s
}

// A program's token lets us in. It is given what it needs to know, runs once for all who ask, and again when the API
// server no longer takes the token.
func TestPluginGivesAToken(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			first, second := "first-token", "second-token"
			var now atomic.Pointer[string]
			now.Store(&first)
			s := guarded(t, &now)
			directory := t.TempDir()
			write(t, filepath.Join(directory, "token"), []byte(first))
			count := script(t, directory, `echo "$1|$2|$REGION" > told
echo "$KUBERNETES_EXEC_INFO" > info
echo '{"apiVersion":"client.authentication.k8s.io/`+version+`","kind":"ExecCredential","status":{"token":"'$(cat token)'"}}'
`)
			c := loggedIn(t, directory, s.URL, "insecure-skip-tls-verify: true", fmt.Sprintf(execUser, version))
			<-c.Synced()
			if f := c.feature("pods"); f.State != model.FeatureWorks || c.Pods() != 2 {
				t.Fatalf("pods are %+v, %d are known", f, c.Pods())
			}
			if n := count(); n != 1 {
				t.Errorf("the program ran %d times for all that was asked, want once", n)
			}
			if told, err := os.ReadFile(filepath.Join(directory, "told")); err != nil || string(told) != "one|two words|here\n" {
				t.Errorf("it was told %q, %v", told, err)
			}
			text, err := os.ReadFile(filepath.Join(directory, "info"))
			var info execCredential
			if err == nil {
				err = json.Unmarshal(text, &info)
			}
			if err != nil || info.Kind != "ExecCredential" || info.APIVersion != "client.authentication.k8s.io/"+version ||
				info.Spec.Interactive || info.Spec.Cluster == nil || info.Spec.Cluster.Server != s.URL ||
				!info.Spec.Cluster.Insecure {
				t.Errorf("KUBERNETES_EXEC_INFO is %q, %v", text, err)
			}
			// The token is withdrawn.
			write(t, filepath.Join(directory, "token"), []byte(second))
			now.Store(&second)
			for _, f := range c.Check(t.Context()) {
				if f.State != model.FeatureWorks {
					t.Errorf("with a new token: %+v", f)
				}
			}
			if n := count(); n != 2 {
				t.Errorf("the program ran %d times, want twice", n)
			}
		})
	}
}

// A credential is kept until it expires, and no longer.
func TestPluginsCredentialExpires(t *testing.T) {
	token := "a-token"
	var now atomic.Pointer[string]
	now.Store(&token)
	s := guarded(t, &now)
	directory := t.TempDir()
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	count := script(t, directory, `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"a-token","expirationTimestamp":"`+expires.Format(time.RFC3339)+`"}}'
`)
	config, err := ReadKubeconfig(write(t, filepath.Join(directory, "config"),
		fmt.Appendf(nil, kubeconfigShape, s.URL, "a: 1", fmt.Sprintf(execUser, "v1"))))
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(config, Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := expires.Add(-time.Second)
	c.client.login.now = func() time.Time { return at }
	f := func(want int) {
		t.Helper()
		for _, feature := range c.Check(t.Context()) {
			if feature.State != model.FeatureWorks {
				t.Errorf("%+v", feature)
			}
		}
		if n := count(); n != want {
			t.Errorf("the program ran %d times, want %d", n, want)
		}
	}
	f(1)
	f(1)
	at = expires
	f(5) // what it gives has expired already, so that each of the four questions runs it
}

// A program's certificate lets us in, and the next one is shown on new connections.
func TestPluginGivesACertificate(t *testing.T) {
	s := newServer(t)
	serverCert, serverKey := certificate(t, x509.ExtKeyUsageServerAuth)
	pair, err := tls.X509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	var now atomic.Pointer[string]
	issue := func() {
		clientCert, clientKey := certificate(t, x509.ExtKeyUsageClientAuth)
		answer, err := json.Marshal(execCredential{APIVersion: pluginVersions[0], Kind: "ExecCredential",
			Status: &execStatus{Certificate: string(clientCert), Key: string(clientKey)}})
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(directory, "answer"), answer)
		leaf, err := tls.X509KeyPair(clientCert, clientKey)
		if err != nil {
			t.Fatal(err)
		}
		wanted := string(leaf.Certificate[0])
		now.Store(&wanted)
	}
	issue()
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 || string(r.TLS.PeerCertificates[0].Raw) != *now.Load() {
			text(401, `{"message":"Unauthorized","reason":"Unauthorized","code":401}`)(0, w, r)
			return
		}
		s.ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.stop)
	count := script(t, directory, "cat answer\n")
	c := loggedIn(t, directory, s.URL, "certificate-authority-data: "+base64.StdEncoding.EncodeToString(serverCert),
		fmt.Sprintf(execUser, "v1"))
	<-c.Synced()
	if f := c.feature("pods"); f.State != model.FeatureWorks || c.Pods() != 2 {
		t.Fatalf("pods are %+v, %d are known", f, c.Pods())
	}
	if n := count(); n != 1 {
		t.Errorf("the program ran %d times, want once", n)
	}
	issue()
	// The watches go on over the old connection meanwhile.
	for _, f := range c.Check(t.Context()) {
		if f.State != model.FeatureWorks {
			t.Errorf("with a new certificate: %+v", f)
		}
	}
	if n := count(); n != 2 {
		t.Errorf("the program ran %d times, want twice", n)
	}
}

// What a program does wrong is told with its name.
func TestPluginFails(t *testing.T) {
	answer := func(rest string) string {
		return `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"` + rest + "}'\n"
	}
	for name, one := range map[string]struct{ rest, want string }{
		"it fails":          {"echo no such profile >&2; exit 3\n", "exit status 3: no such profile"},
		"it writes nothing": {"exit 0\n", "reading what it wrote"},
		"it writes no JSON": {"echo hello\n", "reading what it wrote"},
		"no status":         {answer(""), "neither a token nor a certificate"},
		"an empty status":   {answer(`,"status":{}`), "neither a token nor a certificate"},
		"another version":   {`echo '{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"x"}}'` + "\n", `want an ExecCredential of "client.authentication.k8s.io/v1"`},
		"another kind": {`echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"Pod"}'` + "\n",
			`it wrote a "Pod"`},
		"a broken token":     {answer(`,"status":{"token":"a b"}`), "a token that cannot be one"},
		"half a certificate": {answer(`,"status":{"clientCertificateData":"x"}`), "reading the certificate"},
		"no time":            {answer(`,"status":{"token":"x","expirationTimestamp":"soon"}`), "reading what it wrote"},
		"it writes on":       {"head -c 3000000 /dev/zero\n", "it writes more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			count := script(t, directory, one.rest)
			s := serve(t)
			config, err := ReadKubeconfig(write(t, filepath.Join(directory, "config"),
				fmt.Appendf(nil, kubeconfigShape, s.URL, "a: 1", fmt.Sprintf(execUser, "v1"))))
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(config, Options{})
			if err != nil {
				t.Fatal(err)
			}
			all := c.Check(t.Context())
			command := filepath.Join(directory, "login.sh")
			if len(all) != 1 || all[0].State != model.FeatureAbsent || all[0].Remedy != loginRemedy ||
				!strings.Contains(all[0].Reason, fmt.Sprintf("logging in by the program %q: ", command)) ||
				!strings.Contains(all[0].Reason, one.want) {
				t.Errorf("got %+v, want %q", all, one.want)
			}
			if n := count(); n != 1 {
				t.Errorf("it ran %d times, want once", n)
			}
			if asked := len(s.requests("list", podsPath)); asked != 0 {
				t.Errorf("the API server was asked %d times without a credential", asked)
			}
		})
	}
	config, err := parseKubeconfig(fmt.Appendf(nil, kubeconfigShape, "http://127.0.0.1:1", "a: 1",
		fmt.Sprintf(execUser, "v1")), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Plugin.run(t.Context(), time.Minute); err == nil ||
		!strings.Contains(err.Error(), "ask an administrator for it") {
		t.Errorf("a program that is not there: %v", err)
	}
}

// A program that never ends is ended with its children when nobody waits any more.
func TestPluginHangs(t *testing.T) {
	directory := t.TempDir()
	script(t, directory, "sleep 1000 &\necho $! > child\necho $$ > self\nwait\n")
	config, err := parseKubeconfig(fmt.Appendf(nil, kubeconfigShape, "http://127.0.0.1:1", "a: 1",
		fmt.Sprintf(execUser, "v1")), directory)
	if err != nil {
		t.Fatal(err)
	}
	l := newLogin(config.Plugin)
	l.timeout = 200 * time.Millisecond
	if _, err := l.current(t.Context()); err == nil || !strings.Contains(err.Error(), "it has not ended within 200ms") {
		t.Fatalf("got %v", err)
	}
	eventually(t, "the program's child is gone", func() bool {
		child, err := os.ReadFile(filepath.Join(directory, "child"))
		if err != nil {
			return true // it did not get that far
		}
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

func FuzzPlugin(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"x","expirationTimestamp":"2026-01-01T00:00:00Z"}}`))
	f.Add([]byte(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"clientCertificateData":"x","clientKeyData":"y"}}`))
	f.Add([]byte(`{"apiVersion":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := (&Plugin{Version: pluginVersions[0]}).read(text)
		if err == nil && c.token == "" && c.certificate == nil {
			t.Errorf("%q is no credential and no error", text)
		}
		if strings.ContainsAny(c.token, "\r\n") {
			t.Errorf("%q gives the token %q", text, c.token)
		}
	})
}
