package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// pluginTime is how long a credential plugin may run.
	pluginTime = 30 * time.Second
	// pluginLimit bounds what it writes, pluginSaid how much of its error output is in messages.
	pluginLimit = 1 << 20
	pluginSaid  = 500
	// pluginHangs is how long its children may keep its output open after its end.
	pluginHangs = 2 * time.Second
)

// pluginVersions are those of the protocol between a client of Kubernetes and a credential plugin.
var pluginVersions = []string{"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"}

// Plugin is a program that a kubeconfig names to log in: it writes a token or a certificate.
type Plugin struct {
	Version     string
	Command     string
	Arguments   []string
	Environment []string
	// Hint says how to install it.
	Hint string
	// info is the value of KUBERNETES_EXEC_INFO.
	info string
}

// kubeExec is a user's entry "exec".
type kubeExec struct {
	APIVersion string `yaml:"apiVersion"`
	Command    string
	Args       []string
	Env        []struct{ Name, Value string }
	Hint       string `yaml:"installHint"`
	Info       bool   `yaml:"provideClusterInfo"`
	Mode       string `yaml:"interactiveMode"`
}

// execCredential is what goes to a plugin and comes from it.
type execCredential struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Interactive bool         `json:"interactive"`
		Cluster     *execCluster `json:"cluster,omitempty"`
	} `json:"spec"`
	Status *execStatus `json:"status,omitempty"`
}

type execCluster struct {
	Server        string `json:"server"`
	TLSServerName string `json:"tls-server-name,omitempty"`
	Insecure      bool   `json:"insecure-skip-tls-verify,omitempty"`
	CA            string `json:"certificate-authority-data,omitempty"`
}

type execStatus struct {
	Token       string    `json:"token,omitempty"`
	Certificate string    `json:"clientCertificateData,omitempty"`
	Key         string    `json:"clientKeyData,omitempty"`
	Expires     time.Time `json:"expirationTimestamp,omitzero"`
}

// plugin is the program of a user of c; a path in it is relative to directory.
func (e *kubeExec) plugin(c *Config, directory string) (*Plugin, error) {
	switch {
	case e.Command == "":
		return nil, errors.New("the user logs in by a program (exec), and none is named")
	case !slices.Contains(pluginVersions, e.APIVersion):
		return nil, fmt.Errorf("the user logs in by the program %q, whose apiVersion is %q: want %s", e.Command, e.APIVersion,
			strings.Join(pluginVersions, " or "))
	case e.Mode == "Always":
		return nil, fmt.Errorf("the user logs in by the program %q, which asks a person (interactiveMode Always), and "+
			"nobody is here: make a service account and a token for it", e.Command)
	}
	p := &Plugin{Version: e.APIVersion, Command: e.Command, Arguments: e.Args, Hint: e.Hint}
	if strings.ContainsRune(e.Command, filepath.Separator) {
		p.Command = absolute(e.Command, directory)
	}
	for _, v := range e.Env {
		p.Environment = append(p.Environment, v.Name+"="+v.Value)
	}
	asked := execCredential{APIVersion: e.APIVersion, Kind: "ExecCredential"}
	if e.Info {
		asked.Spec.Cluster = &execCluster{Server: c.Server, TLSServerName: c.ServerName, Insecure: c.Insecure,
			CA: base64.StdEncoding.EncodeToString(c.CA)}
	}
	info, err := json.Marshal(asked)
	if err != nil {
		return nil, fmt.Errorf("BUG: %w", err)
	}
	p.info = string(info)
	return p, nil
}

// credential is what a client shows to the API server.
type credential struct {
	token       string
	certificate *tls.Certificate
	// expires is when it is worth nothing any more; the zero Time is never.
	expires time.Time
	// number tells it from the ones before.
	number uint64
}

// run runs the program, for so long.
func (p *Plugin) run(ctx context.Context, timeout time.Duration) (credential, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it has not ended within %v", timeout))
	defer cancel()
	command := exec.CommandContext(ctx, p.Command, p.Arguments...)
	command.Env = append(append(os.Environ(), p.Environment...), "KUBERNETES_EXEC_INFO="+p.info)
	written, said := bounded{left: pluginLimit}, bounded{left: pluginSaid}
	command.Stdout, command.Stderr = &written, &said
	// Its children end with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = pluginHangs
	err := command.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	} else if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it has ended well, and left somebody behind
	}
	if err == nil && written.left < 0 {
		err = fmt.Errorf("it writes more than %d bytes", pluginLimit)
	}
	var c credential
	if err == nil {
		c, err = p.read(written.text.Bytes())
	}
	if err == nil {
		return c, nil
	}
	if said := strings.TrimSpace(said.text.String()); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	if (errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)) && p.Hint != "" {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(p.Hint))
	}
	return c, &loginError{p.Command, err}
}

// loginError is why a plugin gave nothing.
type loginError struct {
	command string
	cause   error
}

func (e *loginError) Error() string {
	return fmt.Sprintf("logging in by the program %q: %v", e.command, e.cause)
}
func (e *loginError) Unwrap() error { return e.cause }

// read reads what the program wrote.
func (p *Plugin) read(text []byte) (c credential, err error) {
	var answer execCredential
	if err := json.Unmarshal(text, &answer); err != nil {
		return c, fmt.Errorf("reading what it wrote: %w", err)
	}
	status := answer.Status
	switch {
	case answer.Kind != "ExecCredential" || answer.APIVersion != p.Version:
		return c, fmt.Errorf("it wrote a %q of %q, want an ExecCredential of %q", answer.Kind, answer.APIVersion, p.Version)
	case status == nil || status.Token == "" && status.Certificate == "" && status.Key == "":
		return c, errors.New("it wrote neither a token nor a certificate")
	case strings.ContainsFunc(status.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return c, errors.New("it wrote a token that cannot be one")
	}
	c = credential{token: status.Token, expires: status.Expires}
	if status.Certificate == "" && status.Key == "" {
		return c, nil
	}
	pair, err := tls.X509KeyPair([]byte(status.Certificate), []byte(status.Key))
	if err != nil {
		return c, fmt.Errorf("reading the certificate that it wrote: %w", err)
	}
	c.certificate = &pair
	return c, nil
}

// bounded keeps the first bytes of what is written to it.
type bounded struct {
	text bytes.Buffer
	// left is negative once there was more.
	left int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if room := max(b.left, 0); len(p) > room {
		b.text.Write(p[:room])
	} else {
		b.text.Write(p)
	}
	b.left = max(b.left-len(p), -1)
	return len(p), nil
}

// login keeps what a plugin gave for as long as it is worth something.
type login struct {
	plugin  *Plugin
	timeout time.Duration
	now     func() time.Time
	// running is a semaphore of one: who runs the program holds it. It guards number.
	running chan struct{}
	number  uint64

	// mu guards what follows.
	mu   sync.Mutex
	last credential
	// ended is when the program last failed, and failure why.
	ended   time.Time
	failure error
}

func newLogin(p *Plugin) *login {
	return &login{plugin: p, timeout: pluginTime, now: time.Now, running: make(chan struct{}, 1)}
}

// current is a credential that is not known to be worthless. The program runs where there is none; those who ask
// meanwhile wait for the same run.
func (l *login) current(ctx context.Context) (credential, error) {
	began := time.Now()
	if c, ok := l.kept(); ok {
		return c, nil
	}
	select {
	case l.running <- struct{}{}:
	case <-ctx.Done():
		return credential{}, &loginError{l.plugin.Command, ctx.Err()}
	}
	defer func() { <-l.running }()
	if c, ok := l.kept(); ok {
		return c, nil
	}
	l.mu.Lock()
	failure, ended := l.failure, l.ended
	l.mu.Unlock()
	if failure != nil && ended.After(began) {
		return credential{}, failure
	}
	c, err := l.plugin.run(ctx, l.timeout)
	l.number++
	c.number = l.number
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure = err; err != nil {
		l.ended = time.Now()
		return credential{}, err
	}
	l.last = c
	return c, nil
}

func (l *login) kept() (credential, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.last
	return c, c.number != 0 && (c.expires.IsZero() || l.now().Before(c.expires))
}

// refused forgets a credential that the API server did not take, unless there is another one by now.
func (l *login) refused(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.number == number {
		l.last = credential{}
	}
}
