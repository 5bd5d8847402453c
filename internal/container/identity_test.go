package container

import (
	"strings"
	"testing"

	"outsight/internal/model"
)

const (
	idA = "78bb0abe831de5ab6203c1adeb7231c36290f95afd8080ea8c57cc3a93a85455"
	idB = "38f6d0e986cd75ed363fc847257e5d7a14389f8be5ec903c6827a62df4b0a208"
	uid = "005f082b-5fd9-4650-8ef4-473e63bc2d13"
	// The uid as systemd slices hold it, and the one of a pod from a file.
	uidUnit   = "005f082b_5fd9_4650_8ef4_473e63bc2d13"
	uidStatic = "f5d0c3b1a2e4968798a7b6c5d4e3f201"
)

func TestIdentify(t *testing.T) {
	container := func(path string, runtime model.Runtime, id, pod, own string) {
		t.Helper()
		got := Identify(path)
		if got.Kind != ContainerGroup || got.Runtime != runtime || got.ID != id || got.PodUID != pod || got.Path != own {
			t.Errorf("%s:\n got %+v\nwant %v %v pod %q path %q", path, got, runtime, id, pod, own)
		}
	}
	same := func(path string, runtime model.Runtime, pod string) {
		t.Helper()
		container(path, runtime, idA, pod, path)
	}
	// Docker: cgroupfs driver, systemd driver, custom parents.
	same("/docker/"+idA, model.Docker, "")
	same("/system.slice/docker-"+idA+".scope", model.Docker, "")
	same("/machine.slice/jobs.slice/docker-"+idA+".scope", model.Docker, "")
	same("/batch/nightly/"+idA, model.Docker, "")
	same("/"+idA, model.Docker, "")
	same("/ecs/cluster/0123456789abcdef0123456789abcdef/"+idA, model.Docker, "")
	// containerd and Podman without Kubernetes.
	same("/default/"+idA, model.Containerd, "")
	same("/system.slice/nerdctl-"+idA+".scope", model.Containerd, "")
	same("/machine.slice/libpod-"+idA+".scope", model.Podman, "")
	same("/libpod_parent/libpod-"+idA, model.Podman, "")
	same("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-"+idA+".scope", model.Podman, "")
	same("/system.slice/web.service/libpod-payload-"+idA, model.Podman, "")
	// Kubernetes, cgroupfs driver: the three classes; k3s has the same names.
	same("/kubepods/burstable/pod"+uid+"/"+idA, model.Containerd, uid)
	same("/kubepods/besteffort/pod"+uid+"/"+idA, model.Containerd, uid)
	same("/kubepods/pod"+uid+"/"+idA, model.Containerd, uid)
	same("/kubepods/burstable/pod"+uidStatic+"/"+idA, model.Containerd, uidStatic)
	same("/kubepods/burstable/pod"+uid+"/crio-"+idA, model.CRIO, uid)
	// Kubernetes, systemd driver.
	slices := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uidUnit + ".slice/"
	same(slices+"cri-containerd-"+idA+".scope", model.Containerd, uid)
	same(slices+"crio-"+idA+".scope", model.CRIO, uid)
	same(slices+"docker-"+idA+".scope", model.Docker, uid)
	same("/kubepods.slice/kubepods-pod"+uidUnit+".slice/cri-containerd-"+idA+".scope", model.Containerd, uid)
	same("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"+uidStatic+".slice/crio-"+idA+".scope",
		model.CRIO, uidStatic)
	// The drivers of kubelet and containerd differ.
	same("/system.slice/containerd.service/kubepods-burstable-pod"+uidUnit+".slice:cri-containerd:"+idA, model.Containerd,
		uid)
	same("/kubepods-besteffort-pod"+uidUnit+".slice:cri-containerd:"+idA, model.Containerd, uid)
	// Groups below a container, and containers within containers.
	container("/docker/"+idA+"/init.scope", model.Docker, idA, "", "/docker/"+idA)
	container("/docker/"+idA+"/system.slice/nginx.service", model.Docker, idA, "", "/docker/"+idA)
	container("/machine.slice/libpod-"+idA+".scope/container", model.Podman, idA, "",
		"/machine.slice/libpod-"+idA+".scope")
	container("/docker/"+idB+"/docker/"+idA+"/child", model.Docker, idA, "", "/docker/"+idB+"/docker/"+idA)
	same("/docker/"+idB+"/kubelet/kubepods/burstable/pod"+uid+"/"+idA, model.Containerd, uid)
	same("/docker/"+idB+"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"+
		"kubelet-kubepods-burstable-pod"+
		uidUnit+".slice/cri-containerd-"+idA+".scope", model.Containerd, uid)
	container("/docker/"+idA+"/kubelet/kubepods/burstable", model.Docker, idA, "", "/docker/"+idA)

	if got := Identify("/system.slice/docker-" + idA + ".scope"); got.Unit != "docker-"+idA+".scope" {
		t.Errorf("unit %q", got.Unit)
	}
}

func TestIdentifyServicesAndHost(t *testing.T) {
	service := func(path, own, unit string) {
		t.Helper()
		got := Identify(path)
		want := Identity{Kind: ServiceGroup, Runtime: model.Systemd, ID: own, Unit: unit, Path: own}
		if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", path, got, want)
		}
	}
	service("/system.slice/nginx.service", "/system.slice/nginx.service", "nginx.service")
	service("/system.slice/system-getty.slice/getty@tty1.service", "/system.slice/system-getty.slice/getty@tty1.service",
		"getty@tty1.service")
	service("/system.slice/docker.service/runtime/x", "/system.slice/docker.service", "docker.service")
	user := "/user.slice/user-1000.slice/user@1000.service"
	service(user+"/init.scope", user, "user@1000.service")
	service(user+"/app.slice/sync.service", user+"/app.slice/sync.service", "sync.service")
	// The monitor of a Podman container that is a unit belongs to the unit.
	service("/system.slice/web.service/supervisor", "/system.slice/web.service", "web.service")

	host := func(path string) {
		t.Helper()
		if got := Identify(path); got != (Identity{}) {
			t.Errorf("%s: %+v, want the host", path, got)
		}
	}
	host("/")
	host("")
	host("/init.scope")
	host("/user.slice/user-0.slice/session-3.scope")
	host("/docker")
	host("/kubepods/burstable/pod" + uid)
	host("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uidUnit + ".slice")
	// Monitors of containers are not the containers.
	host("/kubepods.slice/kubepods-pod" + uidUnit + ".slice/crio-conmon-" + idA + ".scope")
	host("/machine.slice/libpod-conmon-" + idA + ".scope")
	// Not quite ids.
	host("/docker/" + idA[1:])
	host("/docker/" + strings.ToUpper(idA))
	host("/docker/x" + idA)
	host("/jobs/unknown-" + idA + ".scope")
	host("/system.slice/.service")
}

func FuzzIdentify(f *testing.F) {
	f.Add("/docker/" + idA + "/init.scope")
	f.Add("/kubepods.slice/kubepods-burstable-pod" + uidUnit + ".slice/cri-containerd-" + idA + ".scope")
	f.Add("/kubepods-besteffort-pod" + uidUnit + ".slice:cri-containerd:" + idA)
	f.Add("/system.slice/nginx.service")
	f.Add("//" + idA + "//")
	f.Fuzz(func(t *testing.T, path string) {
		got := Identify(path)
		switch got.Kind {
		case HostGroup:
			if got != (Identity{}) {
				t.Errorf("%q: %+v", path, got)
			}
			return
		case ContainerGroup:
			if !isID(got.ID) {
				t.Errorf("%q: id %q", path, got.ID)
			}
		}
		if !strings.HasPrefix(path, got.Path) || got.Path == "" {
			t.Errorf("%q: own path %q", path, got.Path)
		}
		// The container's own group is the same container.
		if again := Identify(got.Path); again != got {
			t.Errorf("%q: %+v, its own path: %+v", path, got, again)
		}
	})
}
