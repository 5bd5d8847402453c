package container

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"outsight/internal/model"
)

// TestDockerPlacement: of a real container, its volumes, its bind mounts and its labels are known; those of a memory file
// system are no data of the host.
func TestDockerPlacement(t *testing.T) {
	e := hostEngine(t)
	directory, err := os.MkdirTemp("/var/tmp", "osct-place-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	e.run(t, "volume", "create", "osct-data")
	t.Cleanup(func() { e.command("volume", "rm", "--force", "osct-data").Run() })
	r := runRegistry(t, Options{})
	id := e.start(t, "osct-placed", "--volume", "osct-data:/data", "--volume", "/anonymous", "--volume", directory+":/bound",
		"--tmpfs", "/scratch", "--label", "outsight.place.require=disk=ssd", "--label", "outsight.place.stay=false",
		testImage, "/bin/sleep", "600")
	awaitContainer(t, r, id, func(c *model.Container) error {
		labels, ok := model.ParseLabelText(c.Placement)
		if !ok {
			return fmt.Errorf("placement %q", c.Placement)
		}
		var got []string
		for _, l := range labels {
			got = append(got, l.Name+": "+l.Value)
		}
		slices.Sort(got)
		if want := []string{"require: disk=ssd", "volume: the bind mount of " + directory, "volume: the volume at /anonymous",
			"volume: the volume osct-data"}; !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

// TestBundleVolumes: of what runtimes mount, data of the host is told from what each container gets anew.
func TestBundleVolumes(t *testing.T) {
	f := func(kind, source, destination, want string) {
		t.Helper()
		if got := strings.Join(bundleVolumes([]bundleMount{{kind, source, destination}}), ", "); got != want {
			t.Errorf("%s of %s: %q, want %q", kind, source, got, want)
		}
	}
	const pod = "/var/lib/kubelet/pods/0f3a/"
	f("proc", "proc", "/proc", "")
	f("tmpfs", "/srv/data", "/data", "")
	f("bind", "/srv/data", "/data", "the bind mount of /srv/data")
	f("bind", "/running", "/data", "the bind mount of /running")
	f("bind", "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/1/resolv.conf", "/etc/resolv.conf", "")
	f("bind", pod+"volumes/kubernetes.io~projected/kube-api-access-x", "/var/run/secrets/kubernetes.io/serviceaccount", "")
	f("bind", pod+"volumes/kubernetes.io~empty-dir/scratch", "/scratch", "")
	f("bind", pod+"etc-hosts", "/etc/hosts", "")
	f("bind", pod+"volumes/kubernetes.io~local-volume/pv-7", "/data", "the local persistent volume pv-7")
	f("bind", "/var/lib/nerdctl/1935db59/volumes/default/pg/_data", "/data", "the volume pg")
	f("bind", "/var/lib/containers/storage/volumes/"+strings.Repeat("a", 64)+"/_data", "/data", "the volume at /data")
	f("bind", "/var/lib/nerdctl/1935db59/etchosts/default/1/hosts", "/etc/hosts", "")
}
