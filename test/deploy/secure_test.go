package deploy

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unit reads a unit: values by key, in order.
func unit(t *testing.T, name string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(root + "systemd/outsight-" + name + ".service")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			keys[key] = append(keys[key], value)
		}
	}
	return keys
}

// allowedCalls are the system calls that the agent's unit leaves it. What @system-service stands for is that of systemd
// 252 ("systemd-analyze syscall-filter").
func allowedCalls(t *testing.T) (calls []string) {
	t.Helper()
	for _, entry := range strings.Fields(strings.Join(unit(t, "agent")["SystemCallFilter"], " ")) {
		switch {
		case entry == "@system-service":
			text, err := os.ReadFile("testdata/system-service.txt")
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, strings.Fields(string(text))...)
		case strings.HasPrefix(entry, "@") || strings.HasPrefix(entry, "~"):
			t.Fatalf("%s is not known here: extend this test", entry)
		default:
			calls = append(calls, entry)
		}
	}
	return calls
}

// unitProfile is a file for Docker with the unit's system calls.
func unitProfile(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"defaultAction": "SCMP_ACT_ERRNO", "architectures": []string{"SCMP_ARCH_X86_64"},
		"syscalls": []any{map[string]any{"names": allowedCalls(t), "action": "SCMP_ACT_ALLOW"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The agent may make the calls that it makes, and none that only those need who change the host. TestImage runs it so.
func TestUnitsAreClosed(t *testing.T) {
	calls := allowedCalls(t)
	for _, needed := range []string{"bpf", "perf_event_open", "openat2", "ioctl", "eventfd2", "sched_setaffinity",
		"flock", "unlinkat", "fchmodat"} {
		if !slices.Contains(calls, needed) {
			t.Errorf("the agent's unit refuses %s, which it calls", needed)
		}
	}
	for _, other := range []string{"mount", "init_module", "reboot", "ptrace", "kexec_load", "swapon", "settimeofday",
		"pivot_root"} {
		if slices.Contains(calls, other) {
			t.Errorf("the agent's unit allows %s, which it does not call", other)
		}
	}
	for name, wanted := range map[string][]string{
		"agent": {"ProtectKernelTunables", "ProtectKernelModules", "ProtectControlGroups", "ProtectHome",
			"NoNewPrivileges", "RestrictNamespaces", "RestrictRealtime", "MemoryDenyWriteExecute"},
		"server": {"ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups",
			"ProtectHome", "NoNewPrivileges", "PrivateDevices", "DynamicUser", "MemoryDenyWriteExecute"},
	} {
		keys := unit(t, name)
		for _, key := range wanted {
			if !slices.Equal(keys[key], []string{"yes"}) {
				t.Errorf("unit of the %s: %s=%v", name, key, keys[key])
			}
		}
		if len(keys["SystemCallFilter"]) == 0 || !slices.Equal(keys["SystemCallArchitectures"], []string{"native"}) {
			t.Errorf("unit of the %s: system calls %v of %v", name, keys["SystemCallFilter"], keys["SystemCallArchitectures"])
		}
	}
	// Every credential that the server's unit names is loaded, and TLS is on.
	keys := unit(t, "server")
	for _, used := range regexp.MustCompile(`--([a-z-]+) \$\{CREDENTIALS_DIRECTORY\}/(\S+)`).FindAllStringSubmatch(keys["ExecStart"][0], -1) {
		if !slices.Contains(keys["LoadCredential"], used[2]+":/etc/outsight/"+used[2]) {
			t.Errorf("--%s is not loaded", used[1])
		}
	}
	for _, flag := range []string{"--token-file", "--tls-cert", "--tls-key"} {
		if !strings.Contains(keys["ExecStart"][0], flag+" ") {
			t.Errorf("the server's unit has no %s", flag)
		}
	}
}

// withNamespaces are the agent's capabilities with the patch of its manifest by which it enters network namespaces. The
// patch adds one, and changes nothing else. ("kubectl patch --local" puts the list in the place of the manifest's.)
func withNamespaces(t *testing.T) []string {
	t.Helper()
	capabilities := append(agentManifest(t).capabilities, "SYS_ADMIN")
	var add []any
	for _, c := range capabilities {
		add = append(add, c)
	}
	var want any = []any{map[string]any{"name": "agent",
		"securityContext": map[string]any{"capabilities": map[string]any{"add": add}}}}
	for _, key := range []string{"containers", "spec", "template", "spec"} {
		want = map[string]any{key: want}
	}
	if patch := documents(t, root+"kubernetes/namespaces.yaml"); len(patch) != 1 || !reflect.DeepEqual(any(patch[0]), want) {
		t.Errorf("the patch is %v, want %v", patch, want)
	}
	return capabilities
}

// The drop-in of the agent's unit lets it enter network namespaces, as systemd reads both; the unit alone does not.
func TestUnitsEnterNamespacesWhenTold(t *testing.T) {
	needSystemd(t)
	lets := func(files ...string) map[string]bool {
		t.Helper()
		dir := t.TempDir()
		for _, file := range files {
			text, err := os.ReadFile(root + "systemd/" + file)
			if err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(dir, "etc/systemd/system", file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		var checks []struct {
			Set  bool   `json:"set"`
			Name string `json:"name"`
		}
		out := run(t, "systemd-analyze", "security", "--offline=true", "--root="+dir, "--json=short", files[0])
		if err := json.Unmarshal([]byte(out), &checks); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		open := map[string]bool{}
		for _, c := range checks {
			open[c.Name] = !c.Set
		}
		return open
	}
	const unit = "outsight-agent.service"
	without, with := lets(unit), lets(unit, unit+".d/namespaces.conf")
	for name, open := range with {
		is := name == "RestrictNamespaces=~net" || name == "CapabilityBoundingSet=~CAP_SYS_ADMIN"
		if is && (!open || without[name]) || !is && open != without[name] {
			t.Errorf("%s is open: %v, with the drop-in %v", name, without[name], open)
		}
	}
	if len(with) < 20 {
		t.Errorf("systemd told %v", with)
	}
}

// Images have a version, the same everywhere.
func TestImagesHaveAVersion(t *testing.T) {
	images := map[string]bool{}
	for _, file := range []string{"kubernetes/agent.yaml", "kubernetes/server.yaml", "Dockerfile", "README.md"} {
		text, err := os.ReadFile(root + file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?:image: |docker build -t )(\S+)`).FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no image", file)
		}
		for _, f := range found {
			images[f[1]] = true
			if !regexp.MustCompile(`^outsight:\d+\.\d+\.\d+$`).MatchString(f[1]) {
				t.Errorf("%s: %s has no version", file, f[1])
			}
		}
	}
	if len(images) != 1 {
		t.Errorf("there are several versions: %v", images)
	}
}

// In the cluster all goes over TLS; an agent has what it sends with and no key of the server's; and a policy says who
// may connect.
func TestManifestsAreClosed(t *testing.T) {
	agent := documents(t, root+"kubernetes/agent.yaml")[0]
	pod := at(t, agent, "spec", "template", "spec")
	arguments := strings.Join(texts(at(t, at(t, pod, "containers").([]any)[0], "args")), " ")
	if !strings.Contains(arguments, "--server https://") || !strings.Contains(arguments, "--tls-ca ") {
		t.Errorf("the agent sends with %s", arguments)
	}
	keys := map[string]bool{}
	for _, v := range at(t, pod, "volumes").([]any) {
		projected, ok := v.(map[string]any)["projected"]
		if !ok {
			continue
		}
		for _, source := range at(t, projected, "sources").([]any) {
			for _, item := range at(t, source, "secret", "items").([]any) {
				keys[at(t, source, "secret", "name").(string)+"/"+at(t, item, "key").(string)] = true
			}
		}
	}
	if len(keys) != 3 || !keys["outsight-tokens/agent"] || !keys["outsight-tokens/scrape"] ||
		!keys["outsight-tls/ca.crt"] {
		t.Errorf("the agent has %v", keys)
	}
	of := map[string]map[string]any{}
	for _, d := range documents(t, root+"kubernetes/server.yaml") {
		of[d["kind"].(string)] = d
	}
	pod = at(t, of["Deployment"], "spec", "template", "spec")
	c := at(t, pod, "containers").([]any)[0]
	for _, flag := range []string{"--tls-cert", "--tls-key", "--token-file"} {
		if !slices.Contains(texts(at(t, c, "args")), flag) {
			t.Errorf("the server has no %s", flag)
		}
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe"} {
		if at(t, c, probe, "httpGet", "scheme") != "HTTPS" {
			t.Errorf("%s does not talk TLS", probe)
		}
	}
	ports := map[string]bool{}
	for _, p := range at(t, c, "ports").([]any) {
		ports[at(t, p, "name").(string)] = true
	}
	policy := at(t, of["NetworkPolicy"], "spec")
	labels := at(t, of["Deployment"], "spec", "template", "metadata", "labels").(map[string]any)
	for k, v := range at(t, policy, "podSelector", "matchLabels").(map[string]any) {
		if labels[k] != v {
			t.Errorf("the policy is for %s=%v", k, v)
		}
	}
	if got := texts(at(t, policy, "policyTypes")); !slices.Equal(got, []string{"Ingress", "Egress"}) {
		t.Errorf("the policy is about %v", got)
	}
	open := map[string]bool{}
	for _, rule := range at(t, policy, "ingress").([]any) {
		if len(at(t, rule, "from").([]any)) == 0 {
			t.Error("everybody may connect")
		}
		for _, p := range at(t, rule, "ports").([]any) {
			open[at(t, p, "port").(string)] = true
		}
	}
	for name := range ports {
		if !open[name] {
			t.Errorf("nobody may connect to %s", name)
		}
	}
	if len(open) != len(ports) {
		t.Errorf("the policy opens %v of %v", open, ports)
	}
}
