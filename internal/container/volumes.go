package container

import (
	"path/filepath"
	"strings"

	"outsight/internal/model"
)

// placement is what the runtime says of where the container may run: its data, and its labels.
func (d *description) placement() string {
	var all []model.Label
	for _, volume := range d.volumes {
		all = append(all, model.Label{Name: model.PlaceVolume, Value: model.Printable(volume, maxVolume)})
	}
	return model.PlacementText(append(all, model.LabelledPlacements(d.labels)...))
}

// maxVolume bounds what is said of a volume, in bytes.
const maxVolume = 200

// dockerVolumes are the mounts whose data is on this host: bind mounts, and volumes of the driver local.
func dockerVolumes(mounts []dockerMount) (all []string) {
	for _, m := range mounts {
		switch {
		case m.Type == "bind":
			all = append(all, "the bind mount of "+m.Source)
		case m.Type == "volume" && (m.Driver == "" || m.Driver == "local"):
			all = append(all, volumeName(m.Name, m.Destination))
		}
	}
	return all
}

// volumeName says which volume it is. What has no name of people is called by where the container has it.
func volumeName(name, destination string) string {
	if isID(name) {
		return "the volume at " + destination
	}
	return "the volume " + name
}

// bundleMount is a mount of an OCI configuration.
type bundleMount struct{ Type, Source, Destination string }

// ofRuntimes are directories of which runtimes and the kubelet mount what each container has anew: names of hosts, secrets,
// sockets.
var ofRuntimes = []string{"/run/", "/var/run/", "/dev/", "/proc/", "/sys/", "/var/lib/containerd/", "/var/lib/nerdctl/",
	"/var/lib/containers/", "/var/lib/kubelet/", "/var/lib/rancher/", "/var/lib/crio/", "/var/lib/docker/"}

// bundleVolumes are the mounts whose data is on this host. A volume of nerdctl or Podman is a directory _data.
func bundleVolumes(mounts []bundleMount) (all []string) {
	for _, m := range mounts {
		source := filepath.Clean(m.Source) + "/"
		_, localVolume, isLocalVolume := strings.Cut(source, "/volumes/kubernetes.io~local-volume/")
		switch {
		case m.Type != "bind":
		case isLocalVolume:
			all = append(all, "the local persistent volume "+strings.TrimSuffix(localVolume, "/"))
		case strings.HasSuffix(source, "/_data/"):
			all = append(all, volumeName(filepath.Base(filepath.Dir(filepath.Clean(source))), m.Destination))
		case !hasPrefix(source, ofRuntimes):
			all = append(all, "the bind mount of "+m.Source)
		}
	}
	return all
}

func hasPrefix(text string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}
