package deploy

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"outsight/internal/otlp"
)

// documents are the YAML documents of a file.
func documents(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var d map[string]any
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, d)
	}
}

// at is what lies at a path of keys.
func at(t *testing.T, d any, path ...string) any {
	t.Helper()
	for i, key := range path {
		m, ok := d.(map[string]any)
		if !ok || m[key] == nil {
			t.Fatalf("there is no %s", strings.Join(path[:i+1], "."))
		}
		d = m[key]
	}
	return d
}

func texts(list any) (all []string) {
	items, _ := list.([]any)
	for _, item := range items {
		text, _ := item.(string)
		all = append(all, text)
	}
	return all
}

// expression is a query, and where it stands.
type expression struct{ where, query string }

// expressions are all queries of the dashboards and the alerts.
func expressions(t *testing.T) (all []expression) {
	t.Helper()
	for _, file := range Dashboards(t) {
		for _, p := range ReadDashboard(t, file).Panels {
			for _, target := range p.Targets {
				all = append(all, expression{filepath.Base(file) + ": " + p.Title, target.Expr})
			}
		}
	}
	for _, d := range documents(t, root+"prometheus/alerts.yml") {
		for _, g := range d["groups"].([]any) {
			for _, r := range at(t, g, "rules").([]any) {
				all = append(all, expression{at(t, r, "alert").(string), at(t, r, "expr").(string)})
			}
		}
	}
	return all
}

// A dashboard can be imported: it asks for a data source and uses it everywhere, and its panels
// do not lie over each other.
func TestDashboardsCanBeImported(t *testing.T) {
	uids := map[string]bool{}
	for _, file := range Dashboards(t) {
		d := ReadDashboard(t, file)
		if len(d.Inputs) != 1 || d.Inputs[0].Name != "DS_PROMETHEUS" || d.Title == "" || uids[d.UID] || d.UID == "" ||
			len(d.Panels) < 5 {
			t.Errorf("%s: %+v", file, d)
		}
		uids[d.UID] = true
		taken, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.Datasource.UID != "${DS_PROMETHEUS}" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %q: %+v", file, p.Title, p)
			}
			ids[p.ID] = true
			for _, target := range p.Targets {
				if target.Datasource.UID != "${DS_PROMETHEUS}" {
					t.Errorf("%s: %q asks %q", file, p.Title, target.Datasource.UID)
				}
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: %q lies on %q at %d, %d", file, p.Title, other, x, y)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

var (
	metricName = regexp.MustCompile(`\b(?:outsight|container)_[a-z0-9_]+`)
)

// What is asked for is in the table of names.
func TestMetricsExist(t *testing.T) {
	known := map[string]bool{}
	for _, m := range otlp.Metrics() {
		known[m.Name] = true
	}
	asked := map[string]bool{}
	for _, e := range expressions(t) {
		names := metricName.FindAllString(e.query, -1)
		if len(names) == 0 {
			t.Errorf("%s: no metric in %s", e.where, e.query)
		}
		for _, name := range names {
			asked[name] = true
			if !known[name] {
				t.Errorf("%s: there is no metric %s", e.where, name)
			}
		}
	}
	if len(asked) < 25 {
		t.Errorf("only %d metrics are asked for", len(asked))
	}
}

// Prometheus's own tool takes the rules, and they do what their tests say.
func TestAlertRules(t *testing.T) {
	for _, arguments := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		command := exec.Command("promtool", arguments...)
		command.Dir = root + "prometheus"
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", arguments, err, out)
		}
	}
	tested := map[string]bool{}
	for _, d := range documents(t, root+"prometheus/alerts_test.yml") {
		for _, test := range at(t, d, "tests").([]any) {
			for _, c := range at(t, test, "alert_rule_test").([]any) {
				tested[at(t, c, "alertname").(string)] = true
			}
		}
	}
	// Its format has no native histograms; these are asked for data in TestQueriesGiveData.
	untested := []string{"ContainerWaitsForCPU", "ForwardingSlow", "ProxySlow", "EdgeSlow"}
	for _, d := range documents(t, root+"prometheus/alerts.yml") {
		for _, g := range d["groups"].([]any) {
			for _, r := range at(t, g, "rules").([]any) {
				if name := at(t, r, "alert").(string); tested[name] == slices.Contains(untested, name) {
					t.Errorf("%s: tested %v", name, tested[name])
				}
			}
		}
	}
}

// What agent and server may do in a cluster is what they need: to list and to watch, and no secret.
func TestClusterRoles(t *testing.T) {
	allowed := map[string]string{}
	for _, d := range documents(t, root+"kubernetes/rbac.yaml") {
		if d["kind"] != "ClusterRole" {
			continue
		}
		role := at(t, d, "metadata", "name").(string)
		for _, rule := range at(t, d, "rules").([]any) {
			for _, resource := range texts(at(t, rule, "resources")) {
				allowed[role+" "+resource] = strings.Join(texts(at(t, rule, "verbs")), " ")
			}
		}
	}
	want := map[string]string{}
	for role, watched := range map[string][]string{"outsight-agent": {"pods"}, "outsight-server": {"pods", "services",
		"nodes", "endpointslices"}} {
		for _, resource := range watched {
			want[role+" "+resource] = "list watch"
		}
		// Asked for one by one.
		want[role+" replicasets"], want[role+" jobs"] = "get", "get"
	}
	if !maps.Equal(allowed, want) {
		t.Errorf("allowed is %v, want %v", allowed, want)
	}
}

// Every flag in the manifests and units is one of its program, and ports agree.
func TestProgramsKnowTheirFlags(t *testing.T) {
	help := map[string]string{}
	for program, arguments := range map[string][]string{
		"outsight-agent": {"run", "./cmd/outsight-agent", "--help"}, "outsight server": {"run", "./cmd/outsight",
			"server", "--help"},
	} {
		command := exec.Command("go", arguments...)
		command.Dir = "../.."
		out, err := command.Output()
		if err != nil {
			t.Fatalf("%v: %v", arguments, err)
		}
		help[program] = string(out)
	}
	flag := regexp.MustCompile(`--[a-z-]+`)
	check := func(where, program, text string) {
		t.Helper()
		found := flag.FindAllString(text, -1)
		if len(found) == 0 {
			t.Errorf("%s: no flags in %q", where, text)
		}
		for _, f := range found {
			// The small agent's help has one hyphen.
			if !regexp.MustCompile(`(?m)[ ,-]` + strings.TrimPrefix(f, "-") + `\b`).MatchString(help[program]) {
				t.Errorf("%s: %s has no flag %s", where, program, f)
			}
		}
	}
	for file, program := range map[string]string{"agent": "outsight-agent", "server": "outsight server"} {
		for _, d := range documents(t, root+"kubernetes/"+file+".yaml") {
			if d["kind"] != "DaemonSet" && d["kind"] != "Deployment" {
				continue
			}
			for _, c := range at(t, d, "spec", "template", "spec", "containers").([]any) {
				check(file+".yaml", program, strings.Join(texts(at(t, c, "args")), " "))
			}
			selector, labels := at(t, d, "spec", "selector", "matchLabels"), at(t, d, "spec", "template", "metadata", "labels")
			for k, v := range selector.(map[string]any) {
				if labels.(map[string]any)[k] != v {
					t.Errorf("%s.yaml selects %s=%v", file, k, v)
				}
			}
		}
		unit, err := os.ReadFile(root + "systemd/outsight-" + file + ".service")
		if err != nil {
			t.Fatal(err)
		}
		start := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(string(unit))
		if start == nil {
			t.Fatalf("unit of the %s starts nothing", file)
		}
		if file == "server" {
			check("unit", program, start[1])
		}
	}
}

func needSystemd(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		t.Skip("systemd-analyze is part of systemd, which this machine does not run")
	}
}

// systemd understands the units.
func TestUnits(t *testing.T) {
	needSystemd(t)
	dir := t.TempDir()
	for _, name := range []string{"outsight-agent.service", "outsight-server.service"} {
		text, err := os.ReadFile(root + "systemd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		// It wants the program to be there.
		text = regexp.MustCompile(`/usr/local/bin/outsight(-agent)?`).ReplaceAll(text, []byte("/bin/true"))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
			filepath.Join(dir, name)).CombinedOutput()
		var wrong []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "outsight") {
				wrong = append(wrong, line)
			}
		}
		if err != nil && len(wrong) > 0 || strings.Contains(string(out), "Unknown") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
