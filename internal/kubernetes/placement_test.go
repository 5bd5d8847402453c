package kubernetes

import (
	"fmt"
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
