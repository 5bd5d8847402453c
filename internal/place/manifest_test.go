package place

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appgroup "github.com/diktyo-io/appgroup-api/pkg/apis/appgroup/v1alpha1"
	networktopology "github.com/diktyo-io/networktopology-api/pkg/apis/networktopology/v1alpha1"
	goyaml "go.yaml.in/yaml/v3"
	apps "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// deployed is a problem with two workloads, whose replicas are to move.
func deployed() (*Problem, *Result) {
	p := &Problem{Hosts: []Host{{Name: "a", Cores: 4, MemoryBytes: 1e9}, {Name: "b", Cores: 4, MemoryBytes: 1e9},
		{Name: "c", Cores: 4, MemoryBytes: 1e9}}}
	for i, name := range []string{"web", "web", "web", "db"} {
		p.Containers = append(p.Containers, Container{Name: name, Namespace: "shop", Pod: name, Workload: name,
			WorkloadKind: "Deployment", Host: i % 2, Memory: Use{1e6, 1e6}})
	}
	p.Traffic = []Traffic{{A: 0, B: 3, Bytes: 1000}, {A: 1, B: 3, Bytes: 500}}
	return p, &Result{Placement: []int{1, 1, 2, 1}}
}

// documentsOf are the YAML documents of a manifest.
func documentsOf(t *testing.T, text []byte, err error) []string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "---\n")[1:]
}

func TestKubernetesPatches(t *testing.T) {
	p, r := deployed()
	text, err := r.Manifest("kubernetes", p, nil, "")
	all := documentsOf(t, text, err)
	if len(all) != 1 { // db stays
		t.Fatalf("%d patches: %s", len(all), text)
	}
	var d apps.Deployment
	if err := yaml.UnmarshalStrict([]byte(all[0]), &d); err != nil {
		t.Fatal(err)
	}
	spec := d.Spec.Template.Spec
	hosts := spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Preference.MatchExpressions[0].Values
	spread := spec.TopologySpreadConstraints
	if d.Name != "web" || strings.Join(hosts, " ") != "b c" || len(spread) != 1 || spread[0].MaxSkew != 1 ||
		spread[0].LabelSelector.MatchLabels["app"] != "web" {
		t.Errorf("the patch is %s", all[0])
	}
}

func TestNetworkAwareResources(t *testing.T) {
	p, r := deployed()
	text, err := r.Manifest("network-aware", p, []Delay{{0, 1, 120e-6}, {1, 0, 130e-6}, {1, 2, 1}}, "")
	all := documentsOf(t, text, err)
	if len(all) != 2 {
		t.Fatalf("%d resources: %s", len(all), text)
	}
	var group appgroup.AppGroup
	if err := yaml.UnmarshalStrict([]byte(all[0]), &group); err != nil {
		t.Fatal(err)
	}
	web := group.Spec.Workloads[1]
	if group.Spec.NumMembers != 4 || web.Workload.Name != "web" || len(web.Dependencies) != 1 ||
		web.Dependencies[0].Workload.Name != "db" || web.Dependencies[0].MinBandwidth.Value() != 4000 {
		t.Errorf("the group is %s", all[0])
	}
	var topology networktopology.NetworkTopology
	if err := yaml.UnmarshalStrict([]byte(all[1]), &topology); err != nil {
		t.Fatal(err)
	}
	origins := topology.Spec.Weights[0].TopologyList[0].OriginList
	if len(origins) != 2 || origins[0].CostList[0].NetworkCost != 12 || origins[1].CostList[1].NetworkCost != 10000 {
		t.Errorf("the topology is %s", all[1])
	}
	for i, module := range []string{"appgroup-api", "networktopology-api"} {
		conforms(t, "github.com/diktyo-io/"+module, all[i])
	}
}

// conforms checks a resource against the schema that the module has for it.
func conforms(t *testing.T, module, text string) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "manifests", "crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `yaml:"openAPIV3Schema"`
				}
			}
		}
	}
	var resource any
	if err := goyaml.Unmarshal(schema, &crd); err != nil {
		t.Fatal(err)
	}
	if err := goyaml.Unmarshal([]byte(text), &resource); err != nil {
		t.Fatal(err)
	}
	checkSchema(t, module, crd.Spec.Versions[0].Schema.OpenAPIV3Schema, resource)
}

// checkSchema checks what schemas of these resources say: properties, required ones, enumerations and bounds.
func checkSchema(t *testing.T, path string, schema map[string]any, value any) {
	t.Helper()
	number := func(of any) float64 {
		switch n := of.(type) {
		case int:
			return float64(n)
		case float64:
			return n
		}
		return 0
	}
	switch v := value.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				t.Errorf("%s has no %v", path, name)
			}
		}
		for name, of := range v {
			if p, ok := properties[name].(map[string]any); ok {
				checkSchema(t, path+"."+name, p, of)
			} else if properties != nil {
				t.Errorf("%s.%s is not in the schema", path, name)
			}
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for _, of := range v {
			checkSchema(t, path+"[]", items, of)
		}
	case int:
		if least, ok := schema["minimum"]; ok && float64(v) < number(least) {
			t.Errorf("%s is %d, the least is %v", path, v, least)
		}
		if most, ok := schema["maximum"]; ok && float64(v) > number(most) {
			t.Errorf("%s is %d, the most is %v", path, v, most)
		}
	case string:
		options, _ := schema["enum"].([]any)
		found := len(options) == 0
		for _, o := range options {
			found = found || o == v
		}
		if !found {
			t.Errorf("%s is %q, want one of %v", path, v, options)
		}
	}
}

func TestComposeConstraints(t *testing.T) {
	p, r := deployed()
	for i := range p.Containers {
		p.Containers[i].Pod, p.Containers[i].Workload = "", ""
	}
	p.Containers[3].Host = 0
	text, err := r.Manifest("compose", p, nil, "")
	all := documentsOf(t, text, err)
	var stack struct {
		Services map[string]struct {
			Deploy struct {
				Placement struct{ Constraints []string }
			}
		}
	}
	if err := goyaml.Unmarshal([]byte(all[0]), &stack); err != nil {
		t.Fatal(err)
	}
	if got := stack.Services["db"].Deploy.Placement.Constraints; len(got) != 1 || got[0] != "node.hostname == b" ||
		len(stack.Services) != 1 || !strings.Contains(string(text), "1 services that are to run on several nodes") {
		t.Errorf("the file is %s", text)
	}
}
