package container

import (
	"strings"

	"outsight/internal/model"
)

// Kind says what a control group belongs to.
type Kind uint8

// The kinds of groups. A HostGroup is in no container.
const (
	HostGroup Kind = iota
	ContainerGroup
	ServiceGroup
)

// Identity is what the path of a control group says.
type Identity struct {
	Kind Kind
	// Runtime is a guess where the path does not name it: an id below kubepods or default may
	// also be Docker's, one below any other group may be containerd's.
	Runtime model.Runtime
	// ID of the innermost container (64 hex digits), or the path of the service.
	ID string
	// Unit is the systemd unit of a service, or of a container that is one ("docker-….scope").
	Unit string
	// PodUID of a Kubernetes pod, with dashes where it is a UUID.
	PodUID string
	// Path of the container's own group; the path asked for may be a group below it.
	Path string
}

const (
	idLength = 64
	// maxPath bounds the path of a service's group, which is its ID.
	maxPath = 1024
)

// Identify reports what a control group belongs to by its path, relative to the hierarchy's root.
// The innermost container counts; groups below a container are the container's, whatever they
// are called; services count only outside of containers.
func Identify(path string) Identity {
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		start := strings.LastIndexByte(path[:end], '/')
		name := path[start+1 : end]
		runtime, id, ok := containerName(name, path[:max(start, 0)])
		if !ok {
			continue
		}
		found := Identity{Kind: ContainerGroup, Runtime: runtime, ID: id, Path: path[:end]}
		if strings.HasSuffix(name, ".scope") {
			found.Unit = name
		}
		found.PodUID = podUID(path[:end])
		return found
	}
	return service(path)
}

// service finds the innermost unit: a user's service lies below the service of the user's own
// systemd. What a user may call as he likes is no unit where it cannot be shown.
func service(path string) Identity {
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		name := path[strings.LastIndexByte(path[:end], '/')+1 : end]
		if len(name) > len(".service") && strings.HasSuffix(name, ".service") &&
			model.Printable(path[:end], maxPath) == path[:end] {
			return Identity{Kind: ServiceGroup, Runtime: model.Systemd, ID: path[:end], Unit: name, Path: path[:end]}
		}
	}
	return Identity{}
}

// prefixes that runtimes put before a container's id. What is not listed is no container: so
// are the monitors of CRI-O and Podman (crio-conmon-<id>).
var prefixes = map[string]model.Runtime{
	"docker-":         model.Docker,
	"cri-containerd-": model.Containerd,
	"nerdctl-":        model.Containerd,
	"crio-":           model.CRIO,
	"libpod-":         model.Podman,
	"libpod-payload-": model.Podman,
	// containerd with the cgroupfs driver under a kubelet with the systemd driver makes one
	// directory of slice, prefix and id with colons between.
	"cri-containerd:": model.Containerd,
	"docker:":         model.Docker,
	"crio:":           model.CRIO,
	"nerdctl:":        model.Containerd,
	"libpod:":         model.Podman,
}

func containerName(name, parent string) (model.Runtime, string, bool) {
	name = strings.TrimSuffix(name, ".scope")
	if len(name) < idLength {
		return "", "", false
	}
	prefix, id := name[:len(name)-idLength], name[len(name)-idLength:]
	if !isID(id) {
		return "", "", false
	}
	if strings.HasSuffix(prefix, ":") {
		_, prefix, _ = strings.Cut(prefix, ":")
	}
	if prefix != "" {
		runtime, ok := prefixes[prefix]
		return runtime, id, ok
	}
	return bareRuntime(parent), id, true
}

// bareRuntime guesses who made a group that is called by the id alone.
func bareRuntime(parent string) model.Runtime {
	switch last := parent[strings.LastIndexByte(parent, '/')+1:]; {
	case last == "libpod_parent":
		return model.Podman
	case last == "default" || last == "k8s.io" || podUID(parent) != "":
		return model.Containerd
	}
	return model.Docker
}

// podUID finds the innermost pod in a path: "pod<uid>" of the cgroupfs driver or
// "kubepods-<class>-pod<uid>.slice" of the systemd one, where dashes of the uid are underscores.
func podUID(path string) string {
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		name := path[strings.LastIndexByte(path[:end], '/')+1 : end]
		if i := strings.Index(name, ".slice"); i >= 0 && (i+6 == len(name) || name[i+6] == ':') {
			if at := strings.LastIndex(name[:i], "-pod"); at >= 0 {
				if uid := strings.ReplaceAll(name[at+4:i], "_", "-"); isPodUID(uid) {
					return uid
				}
			}
			continue
		}
		if uid, ok := strings.CutPrefix(name, "pod"); ok && isPodUID(uid) {
			return uid
		}
	}
	return ""
}

func isID(s string) bool { return len(s) == idLength && isHex(s, 0) }

// isPodUID accepts a UUID and the hash that the kubelet gives to pods from files.
func isPodUID(s string) bool {
	switch len(s) {
	case 36:
		return s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' && isHex(s, '-')
	case 32:
		return isHex(s, 0)
	}
	return false
}

func isHex(s string, also byte) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (also == 0 || c != also) {
			return false
		}
	}
	return true
}
