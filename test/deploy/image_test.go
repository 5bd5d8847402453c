package deploy

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/bench/traffic"
	"outsight/test/issuer"
)

func run(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	command := exec.Command(name, arguments...)
	command.Dir = "../.."
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "DOCKER_BUILDKIT=0")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

// manifest is what the agent's manifest gives it.
type manifest struct {
	capabilities, command, arguments []string
	unconfined                       bool
	// mounts are paths of the host, and whether they are read only.
	mounts map[string]bool
}

// tokenDir is where the agent's tokens are mounted: the one to send, and the one to be scraped with.
const (
	tokenDir    = "/etc/outsight"
	scrapeToken = "fedcba9876543210"
)

func agentManifest(t *testing.T) manifest {
	t.Helper()
	daemon := documents(t, root+"kubernetes/agent.yaml")[0]
	pod := at(t, daemon, "spec", "template", "spec")
	c := at(t, pod, "containers").([]any)[0]
	security := at(t, c, "securityContext")
	if at(t, security, "allowPrivilegeEscalation") != false || security.(map[string]any)["privileged"] != nil ||
		at(t, security, "readOnlyRootFilesystem") != true ||
		!slices.Equal(texts(at(t, security, "capabilities", "drop")), []string{"ALL"}) {
		t.Errorf("the agent's context is %v", security)
	}
	m := manifest{capabilities: texts(at(t, security, "capabilities", "add")), command: texts(at(t, c, "command")),
		arguments:  texts(at(t, c, "args")),
		unconfined: at(t, security, "seccompProfile", "type") == "Unconfined", mounts: map[string]bool{}}
	paths := map[any]string{}
	for _, v := range at(t, pod, "volumes").([]any) {
		if v.(map[string]any)["projected"] != nil {
			paths[at(t, v, "name")] = tokenDir
			continue
		}
		paths[at(t, v, "name")] = at(t, v, "hostPath", "path").(string)
	}
	for _, mount := range at(t, c, "volumeMounts").([]any) {
		path := at(t, mount, "mountPath").(string)
		if paths[at(t, mount, "name")] != path {
			t.Errorf("%s is mounted from %s", path, paths[at(t, mount, "name")])
		}
		m.mounts[path] = mount.(map[string]any)["readOnly"] == true
	}
	return m
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := traffic.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address.String()
}

// watches waits for the agent's metrics, which it returns, and wants all that a host needs to work.
func watches(t *testing.T, address string, log func() string) (metrics string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+scrapeToken)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if metrics = string(body); strings.Contains(metrics, "outsight_host_cores{") &&
				strings.Contains(metrics, "container_cpu_usage_seconds_total{") {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent has no metrics: %v\n%s\n%.2000s", err, log(), metrics)
		}
	}
	works := 0
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "outsight_feature_available{") {
			continue
		}
		if strings.HasSuffix(line, " 1\n") {
			works++
			continue
		}
		t.Logf("off: %s", line)
		for _, needed := range []string{"CAP_", "tp_btf/sched_switch", "tp_btf/inet_sock_set_state", "iter/task"} {
			if strings.Contains(line, `name="`+needed) {
				t.Errorf("with the manifest's capabilities this is off: %s\n%s", line, log())
			}
		}
	}
	if works < 8 {
		t.Errorf("only %d features work", works)
	}
	if !strings.Contains(metrics, `name="host"`) {
		t.Error("the host itself is not counted")
	}
	return metrics
}

// The agent works with the manifest's capabilities and no others; and with those of the option it enters network namespaces.
func TestTheManifestsCapabilitiesAreEnough(t *testing.T) {
	bin := t.TempDir()
	run(t, "go", "build", "-o", bin+"/", "./cmd/outsight-agent")
	for name, capabilities := range map[string][]string{"as it is": agentManifest(t).capabilities,
		"with the option": withNamespaces(t)} {
		t.Run(name, func(t *testing.T) {
			enters := 0
			if slices.Contains(capabilities, "SYS_ADMIN") {
				enters = 1
			}
			metrics := runsWith(t, bin, capabilities)
			for _, feature := range []string{"setns", "tcx/ingress", "tcx/egress"} {
				if !regexp.MustCompile(fmt.Sprintf(`outsight_feature_available{[^}]*name="%s"[^}]*} %d\n`, feature, enters)).MatchString(metrics) {
					t.Errorf("%s is not %d", feature, enters)
				}
			}
		})
	}
}

// runsWith runs the agent of bin with capabilities, wants it to work, and returns its metrics.
func runsWith(t *testing.T, bin string, capabilities []string) (metrics string) {
	t.Helper()
	set := "-all"
	for _, name := range capabilities {
		set += ",+" + strings.ToLower(name)
	}
	address := freeAddress(t)
	agent := exec.Command("setpriv", "--no-new-privs", "--bounding-set="+set, "--inh-caps=-all", bin+"/outsight-agent",
		"--listen", address, "--socket", filepath.Join(t.TempDir(), "a.sock"))
	var said bytes.Buffer
	agent.Stdout, agent.Stderr = &said, &said
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() string {
		if !stopped {
			stopped = true
			agent.Process.Signal(os.Interrupt)
			agent.Wait()
		}
		return said.String()
	}
	t.Cleanup(func() { stop() })
	metrics = watches(t, address, stop)
	if out := stop(); agent.ProcessState.ExitCode() != 0 {
		t.Errorf("the agent ended with %v\n%s", agent.ProcessState, out)
	}
	return metrics
}

// The image has what the programs need, and the agent in it sees the host through the manifest's
// mounts.
func TestImage(t *testing.T) {
	bin := t.TempDir()
	run(t, "go", "build", "-o", bin+"/", "./cmd/...")
	image := fmt.Sprintf("outsight-deploy-test:%d", os.Getpid())
	run(t, "docker", "build", "-q", "-t", image, "-f", "deploy/Dockerfile", bin)
	t.Cleanup(func() { exec.Command("docker", "rmi", "-f", image).Run() })
	if out := run(t, "docker", "run", "--rm", image, "--version"); !strings.Contains(out, "outsight version") {
		t.Errorf("the image says %q", out)
	}
	m := agentManifest(t)
	if !m.unconfined {
		t.Error("the manifest names a profile of system calls: try that one")
	}
	t.Run("as in the manifest", func(t *testing.T) { runsInContainer(t, image, m, "unconfined") })
	// What systemd refuses, Docker can refuse as well.
	t.Run("with the system calls of the unit", func(t *testing.T) { runsInContainer(t, image, m, unitProfile(t)) })
}

// runsInContainer runs the agent of an image with a profile of system calls, and wants it to work.
func runsInContainer(t *testing.T, image string, m manifest, profile string) {
	t.Helper()
	address, name := freeAddress(t), "outsight-deploy-test-"+rand.Text()
	arguments := []string{"run", "-d", "--name", name, "--pid=host", "--network=host", "--read-only",
		"--security-opt=no-new-privileges", "--cap-drop=ALL"}
	arguments = append(arguments, "--security-opt=seccomp="+profile)
	for _, added := range m.capabilities {
		if added == "BPF" || added == "PERFMON" {
			added = "SYS_ADMIN" // which stands for both: Docker did not know them before release 23
		}
		arguments = append(arguments, "--cap-add="+added)
	}
	for path, readOnly := range m.mounts {
		from := path
		switch path {
		case "/run/outsight", "/var/lib/outsight":
			from = t.TempDir() // this host may have an agent
		case tokenDir:
			from = t.TempDir()
			authority, err := os.ReadFile(issuer.New(t, "outsight").CA)
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"token": "0123456789abcdef\n", "scrape": scrapeToken + " read\n",
				"ca.crt": string(authority)} {
				if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o640); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := os.Stat(from); err != nil {
			t.Errorf("this host has no %s: %v", from, err)
			continue
		}
		mount := from + ":" + path
		if readOnly {
			mount += ":ro"
		}
		arguments = append(arguments, "-v", mount)
	}
	arguments = append(arguments, "--entrypoint", m.command[0], image)
	arguments = append(arguments, strings.Fields(strings.ReplaceAll(strings.Join(m.arguments, " "), "$(NODE_IP):8471",
		address))...)
	run(t, "docker", arguments...)
	t.Cleanup(func() { exec.Command("docker", "rm", "-f", name).Run() })
	watches(t, address, func() string {
		log, _ := exec.Command("docker", "logs", name).CombinedOutput()
		return string(log)
	})
	// Who has no token sees that it is ready, and nothing else.
	for path, want := range map[string]int{"/readyz": http.StatusOK, "/metrics": http.StatusUnauthorized} {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s without a token: %s, want %d", path, response.Status, want)
		}
	}
}
