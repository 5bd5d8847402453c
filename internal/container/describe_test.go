package container

import (
	"fmt"
	"strings"
	"testing"

	"outsight/internal/model"
)

// TestPodLabelsNeedAPodsGroup: labels, which an image has too, make a container a pod's only where its control group is
// that pod's.
func TestPodLabelsNeedAPodsGroup(t *testing.T) {
	labelled := func(of string) description {
		return description{name: "innocent", labels: map[string]string{labelContainerName: "coredns",
			labelPodName:      "coredns-0",
			labelPodNamespace: "kube-system", labelPodUID: of}}.withPodLabels()
	}
	f := func(what string, d description, group, name, pod string) {
		t.Helper()
		if got := d.confirmed(group); got.name != name || got.podName != pod || (got.podUID != "") != (pod != "") {
			t.Errorf("%s: %+v, want name %q and pod %q", what, got, name, pod)
		}
	}
	f("an ordinary group", labelled(uid), "", "innocent", "")
	f("another pod's group", labelled(uid), strings.Repeat("0", 32), "innocent", "")
	f("a pod's group, labels without uid", labelled(""), uid, "innocent", "")
	f("the pod's group", labelled(uid), uid, "coredns", "coredns-0")
	written := description{name: "etcd", podName: "etcd-0", byRuntime: true}
	f("written by a runtime", written, uid, "etcd", "etcd-0")
	f("written by a runtime outside of a pod", written, "", "etcd", "")
}

// TestDescriptionsAreClean: what others have chosen reaches nobody with control characters or without bounds.
func TestDescriptionsAreClean(t *testing.T) {
	escape := "\x1b]0;owned\x07\u202e" + strings.Repeat("x", 10000)
	labels := map[string]string{escape: escape}
	for i := range 1000 {
		labels[fmt.Sprint(i)] = escape
	}
	d := description{name: escape, image: escape, podContainer: escape, podName: escape, podNamespace: escape,
		podUID: escape, labels: labels}.clean()
	for _, text := range []string{d.name, d.image, d.podContainer, d.podName, d.podNamespace, d.podUID} {
		if text != model.Printable(text, maxImage) {
			t.Errorf("%d bytes %.20q", len(text), text)
		}
	}
	if len(d.labels) > maxLabels {
		t.Errorf("%d labels", len(d.labels))
	}
	for name, value := range d.labels {
		if name != model.Printable(name, maxLabelName) || value != model.Printable(value, maxLabelValue) {
			t.Errorf("label %.20q of %d bytes", name, len(value))
		}
	}
	if got := Identify("/user.slice/user-1.service/a\x1b[31m.service"); got.ID != "/user.slice/user-1.service" {
		t.Errorf("a unit with an escape sequence is %+v", got)
	}
}
