package kubernetes

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"testing"

	"outsight/internal/model"
)

// TestPlacementOfPods: what a pod requires of where it runs is known in the words of the rules of placement. What is
// preferred is not required, and what cannot be told keeps it where it is.
func TestPlacementOfPods(t *testing.T) {
	c := newCluster(t, Options{})
	const hostname = `"topologyKey":"kubernetes.io/hostname"`
	required := func(terms string) string { return `{"requiredDuringSchedulingIgnoredDuringExecution":` + terms + `}` }
	f := func(spec string, want ...model.Label) {
		t.Helper()
		c.put("pods", fmt.Sprintf(`{"metadata":{"name":"web-0","namespace":"shop","uid":"u","labels":{"app":"web",
			"outsight.place.not_on":"old-*"}},"spec":{"nodeName":"node-a",%s}}`, spec))
		p, ok := c.Identify("", "u")
		text := model.LabelText(append(want, model.Label{Name: model.PlaceNotOn, Value: "old-*"}))
		if !ok || p.Placement != text {
			t.Errorf("%s:\ngot  %s\nwant %s", spec, p.Placement, text)
		}
	}
	l := model.NewLabel
	f(`"hostNetwork":false`)
	f(`"nodeSelector":{"zone":"a","disk":"ssd"}`, l(model.PlaceRequire, "disk in (ssd),zone in (a)"))
	f(`"affinity":{"nodeAffinity":`+required(`{"nodeSelectorTerms":[
		{"matchExpressions":[{"key":"disk","operator":"NotIn","values":["hdd"]},{"key":"gpu","operator":"Exists"}]},
		{"matchFields":[{"key":"metadata.name","operator":"In","values":["node-a","node-b"]}]},{}]}`)+`}`,
		l(model.PlaceRequire, "disk notin (hdd),gpu or metadata.name in (node-a,node-b)"))
	f(`"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":
		{"matchExpressions":[{"key":"gpu","operator":"DoesNotExist"}]}}]}}`)
	own := `"labelSelector":{"matchLabels":{"app":"web"}}`
	f(`"affinity":{"podAntiAffinity":`+required(`[{`+own+`,`+hostname+`}]`)+`}`, l(model.PlaceApart, "shop/app in (web)"))
	f(`"affinity":{"podAffinity":`+required(`[{`+own+`,`+hostname+`,"namespaces":["shop"]}]`)+`}`,
		l(model.PlaceTogether, "shop/app in (web)"))
	stays := "has an anti-affinity to other pods (app in (web) by zone), of which it is not known where they may be"
	f(`"affinity":{"podAntiAffinity":`+required(`[{`+own+`,"topologyKey":"zone"}]`)+`}`, l(model.PlaceStay, stays))
	stays = "has an affinity to other pods (app in (db) by kubernetes.io/hostname), of which it is not known where they may be"
	f(`"affinity":{"podAffinity":`+required(`[{"labelSelector":{"matchExpressions":[{"key":"app","operator":"In",
		"values":["db"]}]},`+hostname+`}]`)+`}`, l(model.PlaceStay, stays))
	stays = "has an anti-affinity to other pods (app in (web) by kubernetes.io/hostname), of which it is not known where they may be"
	f(`"affinity":{"podAntiAffinity":`+required(`[{`+own+`,`+hostname+`,"namespaceSelector":{}}]`)+`}`, l(model.PlaceStay, stays))
	f(`"volumes":[{"name":"a","persistentVolumeClaim":{"claimName":"data-0"}},{"name":"b","emptyDir":{}},
		{"name":"c","hostPath":{"path":"/srv"}}]`, l(model.PlaceVolume, "the persistent volume claim data-0"),
		l(model.PlaceVolume, "the host's path /srv"))
}

// The labels of nodes are those that a real API server told, by their names and by those of their hosts.
func TestHostLabels(t *testing.T) {
	c := newCluster(t, Options{})
	list := replayed(t, "07-nodes-list")
	for _, text := range list {
		c.put("nodes", text)
	}
	want := map[string]string{"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "node-b", "kubernetes.io/os": "linux",
		"topology.kubernetes.io/zone": "zone-a"}
	if got := c.HostLabels(); len(got) != len(list) || !maps.Equal(got["node-b"], want) {
		t.Errorf("%d hosts of %d nodes, node-b has %v", len(got), len(list), got["node-b"])
	}
	c.put("nodes", `{"metadata":{"name":"ip-1.example","labels":{"kubernetes.io/hostname":"ip-1","disk":"ssd"}}}`)
	// A host that is called as a node is that one, whatever another says.
	c.put("nodes", `{"metadata":{"name":"other","labels":{"kubernetes.io/hostname":"node-b","disk":"hdd"}}}`)
	got := c.HostLabels()
	if got["ip-1"]["disk"] != "ssd" || got["ip-1.example"]["disk"] != "ssd" || !maps.Equal(got["node-b"], want) {
		t.Errorf("%v", got)
	}
}

// replayed are the objects of a list that an API server answered.
func replayed(t *testing.T, file string) (all []string) {
	t.Helper()
	whole, err := os.ReadFile("testdata/" + file + ".http")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(bytes.ReplaceAll(whole, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	if _, err := newCutter(bytes.NewReader(body), 2<<20).list(func(text []byte) error {
		all = append(all, string(text))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
