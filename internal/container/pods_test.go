package container

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"outsight/internal/model"
)

// cluster is what a test says that Kubernetes knows.
type cluster struct {
	changed chan struct{}

	mu    sync.Mutex // guards what follows
	known map[string]model.PodIdentity
}

func (c *cluster) Identify(id, uid string) (model.PodIdentity, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range []string{id, uid} {
		if p, ok := c.known[key]; ok {
			return p, true
		}
	}
	return model.PodIdentity{}, false
}

func (c *cluster) Changed() <-chan struct{} { return c.changed }

func (c *cluster) tell(key string, p model.PodIdentity) {
	c.mu.Lock()
	c.known[key] = p
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// TestKubernetesNamesContainers: the control group's path tells the pod's uid; the pod's names come
// when Kubernetes tells them, before or after the container does, and stay over what a runtime says.
func TestKubernetesNamesContainers(t *testing.T) {
	const uid = "3f4f2f6e-0c5e-4a3b-9f62-6f2d0f4b9a10"
	id := strings.Repeat("a", 64)
	root := t.TempDir()
	group := filepath.Join(root, "kubepods", "burstable", "pod"+uid, id)
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	k := &cluster{changed: make(chan struct{}, 1), known: map[string]model.PodIdentity{}}
	r, err := New(Layout{Name: "v2", MountPoint: root},
		Options{CgroupRoot: root, ProcRoot: t.TempDir(), DockerSocket: filepath.Join(root, "none"), Pods: k})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(ended)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	want := func(pod, name, workload string) {
		t.Helper()
		deadline := time.Now().Add(patience)
		for {
			var c *model.Container
			for _, one := range r.Containers() {
				if one.ID == id {
					c = one
				}
			}
			if c != nil && c.PodName == pod && c.Name == name && c.Workload == workload {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the container is %+v, want %s in pod %s of workload %s", c, name, pod, workload)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	want("", id[:12], "")
	k.tell(uid, model.PodIdentity{Namespace: "shop", Pod: "cart-1"}) // its status does not tell of the container yet
	want("cart-1", id[:12], "")
	k.tell(id, model.PodIdentity{Namespace: "shop", Pod: "cart-1", Container: "main", Workload: "cart",
		WorkloadKind: "Deployment"})
	want("cart-1", "main", "cart")
	r.describe(id, description{name: "k8s_main_cart-1", image: "cart:1"})
	want("cart-1", "main", "cart")
	for _, c := range r.Containers() {
		if c.ID == id && (c.Image != "cart:1" || c.PodNamespace != "shop" || c.WorkloadKind != "Deployment" ||
			c.PodUID != uid) {
			t.Errorf("the container is %+v", c)
		}
	}
	// A walk that finds a container which Kubernetes knows already.
	late := strings.Repeat("b", 64)
	k.tell(late, model.PodIdentity{Namespace: "shop", Pod: "cart-2", Container: "main"})
	if err := os.MkdirAll(filepath.Join(root, "kubepods", "pod"+uid, late), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.Resync(); err != nil {
		t.Fatal(err)
	}
	id = late
	want("cart-2", "main", "")
}
