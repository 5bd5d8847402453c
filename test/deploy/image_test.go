package deploy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
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

// The image has what the programs need, and the agent in it works with the capabilities and mounts
// of the manifest alone: it loads its kernel programs and counts this host.
func TestImageWithTheManifestsCapabilities(t *testing.T) {
	bin := t.TempDir()
	run(t, "go", "build", "-o", bin+"/", "./cmd/...")
	image := fmt.Sprintf("outsight-deploy-test:%d", os.Getpid())
	run(t, "docker", "build", "-q", "-t", image, "-f", "deploy/Dockerfile", bin)
	t.Cleanup(func() { exec.Command("docker", "rmi", "-f", image).Run() })
	if out := run(t, "docker", "run", "--rm", image, "--version"); !strings.Contains(out, "outsight version") {
		t.Errorf("the image says %q", out)
	}

	daemon := documents(t, root+"kubernetes/agent.yaml")[0]
	pod := at(t, daemon, "spec", "template", "spec")
	c := at(t, pod, "containers").([]any)[0]
	security := at(t, c, "securityContext")
	if at(t, security, "allowPrivilegeEscalation") != false || security.(map[string]any)["privileged"] != nil || at(t, security, "readOnlyRootFilesystem") != true {
		t.Errorf("the agent's context is %v", security)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	name := fmt.Sprintf("outsight-deploy-test-%d", os.Getpid())
	arguments := []string{"run", "-d", "--name", name, "--pid=host", "--network=host", "--read-only", "--security-opt=no-new-privileges"}
	if at(t, security, "seccompProfile", "type") == "Unconfined" {
		arguments = append(arguments, "--security-opt=seccomp=unconfined")
	}
	for _, dropped := range texts(at(t, security, "capabilities", "drop")) {
		arguments = append(arguments, "--cap-drop="+dropped)
	}
	for _, added := range texts(at(t, security, "capabilities", "add")) {
		arguments = append(arguments, "--cap-add="+added)
	}
	paths := map[string]string{}
	for _, v := range at(t, pod, "volumes").([]any) {
		paths[at(t, v, "name").(string)] = at(t, v, "hostPath", "path").(string)
	}
	for _, m := range at(t, c, "volumeMounts").([]any) {
		from, to := paths[at(t, m, "name").(string)], at(t, m, "mountPath").(string)
		if from != to {
			t.Errorf("%s is mounted at %s", from, to)
		}
		if from == "/run/outsight" {
			from = t.TempDir() // this host may have an agent
		}
		if _, err := os.Stat(from); err != nil {
			continue // a path of other kernels
		}
		arguments = append(arguments, "-v", from+":"+to+":ro")
		if m.(map[string]any)["readOnly"] != true {
			arguments[len(arguments)-1] = from + ":" + to
		}
	}
	arguments = append(arguments, "--entrypoint", texts(at(t, c, "command"))[0], image)
	arguments = append(arguments, strings.Fields(strings.ReplaceAll(strings.Join(texts(at(t, c, "args")), " "), "$(NODE_IP):8471", address))...)
	run(t, "docker", arguments...)
	t.Cleanup(func() { exec.Command("docker", "rm", "-f", name).Run() })

	var metrics string
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		response, err := http.Get("http://" + address + "/metrics")
		if err == nil {
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if metrics = string(body); strings.Contains(metrics, "outsight_host_cores{") && strings.Contains(metrics, "container_cpu_usage_seconds_total{") {
				break
			}
		}
		if time.Now().After(deadline) {
			log, _ := exec.Command("docker", "logs", name).CombinedOutput()
			t.Fatalf("the agent has no metrics: %v\n%s\n%.2000s", err, log, metrics)
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
		t.Log("off: ", line)
		for _, needed := range []string{"CAP_", "tp_btf", "iter/", "conntrack", "cgroup"} {
			if strings.Contains(line, `name="`+needed) {
				t.Errorf("in the container this is off: %s", line)
			}
		}
	}
	if works < 8 {
		t.Errorf("only %d features work", works)
	}
	// Another process of this host is seen: this test, which is in no container of its own.
	if !strings.Contains(metrics, `id="host"`) && !strings.Contains(metrics, `name="host"`) {
		t.Error("the host itself is not counted")
	}
}
