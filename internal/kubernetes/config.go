package kubernetes

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrNotInCluster says that there is no service account: this process does not run in a pod, or in
// one whose account is not mounted.
var ErrNotInCluster = errors.New("no service account is mounted here")

// Config is how to reach an API server, and who asks.
type Config struct {
	// Origin says where the rest is from, for messages.
	Origin string
	// Server is the URL of the API server.
	Server string
	// CA has the PEM certificates that sign the server's; the system's where it is empty.
	CA []byte
	// ServerName is the name expected in the server's certificate, if it is not that of the URL.
	ServerName string
	// Insecure accepts any certificate.
	Insecure bool
	// Certificate of the client; nil for none.
	Certificate *tls.Certificate
	// Token of the client, or TokenFile, which is read again as tokens rotate.
	Token, TokenFile string
	// Plugin is the program that gives a token or a certificate; nil for none.
	Plugin *Plugin
}

// accountDirectory is where Kubernetes mounts a pod's service account.
const accountDirectory = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster is the configuration that a pod's service account gives. directory is where the
// account is mounted, by default where Kubernetes does it. It fails with ErrNotInCluster where
// there is none.
func InCluster(directory string) (Config, error) {
	if directory == "" {
		directory = accountDirectory
	}
	token := filepath.Join(directory, "token")
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if _, err := os.Stat(token); err != nil || host == "" {
		return Config{}, fmt.Errorf("%w: %s and the variable KUBERNETES_SERVICE_HOST are not both there", ErrNotInCluster,
			token)
	}
	if port == "" {
		port = "443"
	}
	ca, err := readLimited(filepath.Join(directory, "ca.crt"))
	if err != nil {
		return Config{}, fmt.Errorf("reading the cluster's certificate: %w", err)
	}
	return Config{Origin: "service account", Server: "https://" + net.JoinHostPort(host, port), CA: ca, TokenFile: token},
		nil
}

// kubeconfig is the part of such a file that matters here.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster struct {
			Server        string
			CA            string `yaml:"certificate-authority"`
			CAData        string `yaml:"certificate-authority-data"`
			Insecure      bool   `yaml:"insecure-skip-tls-verify"`
			TLSServerName string `yaml:"tls-server-name"`
		}
	}
	Users []struct {
		Name string
		User kubeUser
	}
}

type kubeUser struct {
	Token                 string
	TokenFile             string `yaml:"tokenFile"`
	ClientCertificate     string `yaml:"client-certificate"`
	ClientCertificateData string `yaml:"client-certificate-data"`
	ClientKey             string `yaml:"client-key"`
	ClientKeyData         string `yaml:"client-key-data"`
	Username              string
	Exec                  *kubeExec
	AuthProvider          *yaml.Node `yaml:"auth-provider"`
}

// ReadKubeconfig is the configuration of a kubeconfig file's current context. A program
// that it names to log in (exec) is run when the API server is first asked.
func ReadKubeconfig(path string) (Config, error) {
	text, err := readLimited(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	c, err := parseKubeconfig(text, filepath.Dir(path))
	if err != nil {
		return Config{}, fmt.Errorf("reading the kubeconfig %q: %w", path, err)
	}
	c.Origin = "kubeconfig " + path
	return c, nil
}

// parseKubeconfig reads a kubeconfig; files that it names are relative to directory.
func parseKubeconfig(text []byte, directory string) (Config, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(text, &k); err != nil {
		return Config{}, err
	}
	cluster, user := "", ""
	found := false
	for _, c := range k.Contexts {
		if c.Name == k.CurrentContext {
			cluster, user, found = c.Context.Cluster, c.Context.User, true
		}
	}
	if !found {
		return Config{}, fmt.Errorf("there is no context %q, which is the current one", k.CurrentContext)
	}
	c, err := k.cluster(cluster, directory)
	if err != nil {
		return c, err
	}
	if user == "" {
		return c, nil
	}
	for _, u := range k.Users {
		if u.Name == user {
			err := u.User.apply(&c, directory)
			return c, err
		}
	}
	return c, fmt.Errorf("there is no user %q", user)
}

func (k *kubeconfig) cluster(name, directory string) (c Config, err error) {
	for _, known := range k.Clusters {
		if known.Name != name {
			continue
		}
		c.Server, c.Insecure, c.ServerName = known.Cluster.Server, known.Cluster.Insecure, known.Cluster.TLSServerName
		if u, err := url.Parse(c.Server); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return c, fmt.Errorf("the server of cluster %q is %q, want a URL", name, c.Server)
		}
		c.CA, err = dataOrFile(known.Cluster.CAData, known.Cluster.CA, directory)
		return c, err
	}
	return c, fmt.Errorf("there is no cluster %q", name)
}

func (u *kubeUser) apply(c *Config, directory string) error {
	switch {
	case u.AuthProvider != nil:
		return errors.New("the user logs in by an auth-provider, which is not supported: make a service account and a " +
			"token for it")
	case u.Username != "":
		return errors.New("the user logs in with a password, which Kubernetes no longer supports")
	}
	if c.Token = u.Token; c.Token == "" && u.TokenFile != "" {
		c.TokenFile = absolute(u.TokenFile, directory)
	}
	if u.Exec != nil {
		var err error
		if c.Plugin, err = u.Exec.plugin(c, directory); err != nil {
			return err
		}
	}
	certificate, err := dataOrFile(u.ClientCertificateData, u.ClientCertificate, directory)
	if err != nil || certificate == nil {
		return err
	}
	key, err := dataOrFile(u.ClientKeyData, u.ClientKey, directory)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("reading the client's certificate: %w", err)
	}
	c.Certificate = &pair
	return nil
}

// dataOrFile is what is written in the file itself, as base64, or the content of another one.
func dataOrFile(data, file, directory string) ([]byte, error) {
	if data != "" {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(data))
		if err != nil {
			return nil, fmt.Errorf("reading a certificate or key: %w", err)
		}
		return b, nil
	}
	if file == "" {
		return nil, nil
	}
	return readLimited(absolute(file, directory))
}

func absolute(file, directory string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(directory, file)
}
