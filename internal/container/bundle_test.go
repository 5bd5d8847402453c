package container

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"outsight/internal/model"
)

var testBundles = bundles{tasks: []string{"testdata/gone", "testdata/tasks"}, storage: []string{"testdata/storage"}}

func TestDescribeBundles(t *testing.T) {
	check := func(eight string, want description) {
		t.Helper()
		d, err := testBundles.describe(strings.Repeat(eight, 8))
		labels := d.labels
		d.labels, want.labels = nil, nil
		if err != nil || !equalDescriptions(d, want) {
			t.Errorf("%s: %+v, %v, want %+v", eight, d, err, want)
		}
		if (labels != nil) != (want.name != "") {
			t.Errorf("%s: labels %v", eight, labels)
		}
	}
	check("c3f1d1a1", description{runtime: model.Containerd, name: "payment", image: "registry.example/shop/payment:1.4",
		podName: "payment-6d8f9c5b7-x2x9k", podNamespace: "shop", podUID: uid})
	check("0badcafe", description{runtime: model.Containerd, name: "POD", image: "registry.example/pause:3.9",
		podName: "payment-6d8f9c5b7-x2x9k", podNamespace: "shop", podUID: uid})
	check("9ab8c7d6", description{runtime: model.CRIO, name: "cart", image: "quay.io/shop/cart:2.0",
		podName: "cart-0", podNamespace: "shop", podUID: "7f3c1f0e-8f2b-4a55-9c1d-0a1b2c3d4e5f"})
	check("71a2b3c4", description{runtime: model.Podman, name: "catalogue", image: "localhost/shop/catalogue:latest"})
	check("5e0d4b7a", description{runtime: model.Docker}) // its name is in Docker alone
	check("ffffffff", description{})
}

func equalDescriptions(a, b description) bool {
	return a.runtime == b.runtime && a.name == b.name && a.image == b.image &&
		a.podName == b.podName && a.podNamespace == b.podNamespace && a.podUID == b.podUID
}

func TestBrokenBundles(t *testing.T) {
	check := func(text, want string) {
		t.Helper()
		root := t.TempDir()
		writeFile(t, filepath.Join(root, "k8s.io", idA, "config.json"), text)
		d, err := bundles{tasks: []string{root}}.describe(idA)
		if err == nil || !strings.Contains(err.Error(), want) || d.name != "" {
			t.Errorf("%.20q: %+v, %v", text, d, err)
		}
	}
	check("", "unexpected end")
	check(`{"annotations":{"io.kuber`, "unexpected end")
	check(`{"annotations":[1]}`, "cannot unmarshal")
	check(`{"x":"`+strings.Repeat("x", bundleLimit)+`"}`, "more than")
}

func TestBundlesFeature(t *testing.T) {
	if f := testBundles.feature(); f.State != model.FeatureWorks {
		t.Errorf("%+v", f)
	}
	if f := (bundles{tasks: []string{"testdata/gone"}}).feature(); f.State != model.FeatureAbsent ||
		!strings.Contains(f.Reason, "testdata/gone") {
		t.Errorf("%+v", f)
	}
}

// TestContainerd runs a container as a kubelet has containerd do: by a real containerd, in the
// group of a pod, with the annotations of its CRI plugin.
func TestContainerd(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	hostEngine(t).run(t, "save", "--output", archive, testImage)
	directory, err := os.MkdirTemp("", "osct-containerd-") // short: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	socket := directory + "/s"
	config := directory + "/config.toml"
	writeFile(t, config, "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n")
	daemon := exec.Command("containerd", "--config", config, "--address", socket, "--root", directory+"/root", "--state",
		directory+"/state")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		daemon.Process.Kill()
		daemon.Wait()
	})
	ctr := func(arguments ...string) error {
		out, err := exec.Command("ctr", append([]string{"--address", socket, "--namespace", "k8s.io"},
			arguments...)...).CombinedOutput()
		if err != nil {
			return errors.Join(err, errors.New(string(out)))
		}
		return nil
	}
	eventually(t, func() error { return ctr("version") })
	if err := ctr("image", "import", "--snapshotter", "native", archive); err != nil {
		t.Fatal(err)
	}
	id := testID(11)
	path := "/osct-kubepods/burstable/pod" + uid + "/" + id
	t.Cleanup(func() { // runc removes the container's group alone
		for name := filepath.Dir(path); name != "/"; name = filepath.Dir(name) {
			left, _ := filepath.Glob("/sys/fs/cgroup/*" + name)
			for _, directory := range left {
				os.Remove(directory)
			}
		}
	})
	r := runRegistry(t, Options{DockerSocket: directory + "/none",
		TaskRoots: []string{directory + "/state/io.containerd.runtime.v2.task"}})
	const cri = "io.kubernetes.cri."
	if err := ctr("run", "--detach", "--snapshotter", "native", "--cgroup", path,
		"--annotation", cri+"container-type=container", "--annotation", cri+"container-name=payment",
		"--annotation", cri+"image-name=registry.example/shop/payment:1.4", "--annotation", cri+"sandbox-name=payment-0",
		"--annotation", cri+"sandbox-namespace=shop", "--annotation", cri+"sandbox-uid="+uid,
		"docker.io/library/"+testImage, id, "/bin/sleep", "600"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctr("task", "kill", "--signal", "9", id)
		ctr("container", "rm", id)
	})
	c := awaitContainer(t, r, id, func(c *model.Container) error {
		if c.Name != "payment" || c.PID == 0 || c.NetNS == 0 {
			return errors.New("not complete")
		}
		return nil
	})
	if c.Runtime != model.Containerd || c.Image != "registry.example/shop/payment:1.4" || c.CgroupPath != path ||
		c.PodName != "payment-0" || c.PodNamespace != "shop" || c.PodUID != uid || c.NetNS == r.proc.hostNetNS {
		t.Errorf("%+v", c)
	}
	if err := ctr("task", "kill", "--signal", "9", id); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return ctr("task", "delete", id) })
	eventually(t, func() error {
		if find(r.Containers(), id) != nil {
			return errors.New("it runs")
		}
		return nil
	})
}

func FuzzBundle(f *testing.F) {
	for _, name := range []string{"tasks/k8s.io/" + strings.Repeat("c3f1d1a1", 8), "storage/" +
		strings.Repeat("9ab8c7d6", 8) + "/userdata",
		"storage/" + strings.Repeat("71a2b3c4", 8) + "/userdata"} {
		f.Add(testFile(f, name+"/config.json"), testFile(f, "storage/containers.json"))
	}
	id := strings.Repeat("71a2b3c4", 8)
	f.Fuzz(func(t *testing.T, config, containers []byte) {
		root := t.TempDir()
		writeFile(t, filepath.Join(root, "k8s.io", id, "config.json"), string(config))
		writeFile(t, filepath.Join(root, id, "userdata/config.json"), string(config))
		writeFile(t, filepath.Join(root, "containers.json"), string(containers))
		var valid bundle
		for _, b := range []bundles{{tasks: []string{root}}, {storage: []string{root}}} {
			d, err := b.describe(id)
			if err == nil && d.runtime != "" && json.Unmarshal(config, &valid) != nil {
				t.Errorf("%q was described as %+v", config, d)
			}
		}
	})
}
