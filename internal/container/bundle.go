package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// bundleLimit bounds the bytes of a file that a runtime left on disk.
const bundleLimit = 4 << 20

// bundles reads what containerd, CRI-O and Podman write to disk before they start a container:
// its OCI configuration, with names among the annotations.
type bundles struct{ tasks, storage []string }

// bundle is the part of an OCI config.json that matters here.
type bundle struct {
	Annotations map[string]string `json:"annotations"`
	Mounts      []bundleMount     `json:"mounts"`
}

// describe looks for the container in all known directories. What is found nowhere has an empty
// description and no error; a file that cannot be read or parsed is an error.
func (b bundles) describe(id string) (description, error) {
	var errs []error
	try := func(read func() (description, error)) (description, bool) {
		d, err := read()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		return d, err == nil
	}
	for _, root := range b.tasks {
		namespaces, _ := os.ReadDir(root) // absent where containerd is not used
		for _, namespace := range namespaces {
			name := filepath.Join(root, namespace.Name(), id, "config.json")
			if d, ok := try(func() (description, error) { return describeTask(name, namespace.Name()) }); ok {
				return d, nil
			}
		}
	}
	for _, root := range b.storage {
		if d, ok := try(func() (description, error) { return describeStorage(root, id) }); ok {
			return d, nil
		}
	}
	return description{}, errors.Join(errs...)
}

// feature says where such files are, not that each can be read.
func (b bundles) feature() model.Feature {
	f := model.Feature{Name: "oci-bundles", State: model.FeatureWorks,
		Purpose: "names, images and pods of containerd, CRI-O and Podman containers"}
	for _, root := range append(append([]string(nil), b.tasks...), b.storage...) {
		if unix.Access(root, unix.R_OK|unix.X_OK) == nil {
			return f
		}
	}
	f.State = model.FeatureAbsent
	f.Reason = "none of these can be read: " + strings.Join(append(append([]string(nil), b.tasks...), b.storage...), ", ")
	f.Remedy = "nothing where only Docker is used; else run as root and mount these directories of the host"
	return f
}

// describeTask reads a bundle of containerd.
func describeTask(name, namespace string) (description, error) {
	annotations, volumes, err := readBundle(name)
	if err != nil {
		return description{}, err
	}
	if namespace == "moby" {
		return description{runtime: model.Docker}, nil // the name is in Docker alone
	}
	const cri = "io.kubernetes.cri."
	d := description{
		runtime:      model.Containerd,
		name:         first(annotations, cri+"container-name", "nerdctl/name"),
		image:        first(annotations, cri+"image-name", cri+"sandbox-image-name"),
		labels:       annotations,
		volumes:      volumes,
		podName:      annotations[cri+"sandbox-name"],
		podNamespace: annotations[cri+"sandbox-namespace"],
		podUID:       annotations[cri+"sandbox-uid"],
		byRuntime:    true,
	}
	if annotations[cri+"container-type"] == "sandbox" {
		d.name = sandboxName
	}
	return d, nil
}

// sandboxName is what kubelets call the container that holds a pod's namespaces.
const sandboxName = "POD"

// describeStorage reads what CRI-O and Podman keep of a container.
func describeStorage(root, id string) (description, error) {
	annotations, volumes, err := readBundle(filepath.Join(root, id, "userdata/config.json"))
	if err != nil {
		return description{}, err
	}
	if annotations["io.container.manager"] == "libpod" {
		return describePodman(root, id, annotations, volumes)
	}
	const crio = "io.kubernetes.cri-o."
	d := description{
		runtime: model.CRIO,
		image:   first(annotations, crio+"ImageName", crio+"Image"),
		labels:  annotations,
		volumes: volumes,
	}
	d = d.withPodLabels()
	d.podContainer, d.byRuntime = "", true
	d.name = first(annotations, labelContainerName, crio+"ContainerName")
	if annotations[crio+"ContainerType"] == "sandbox" {
		d.name = sandboxName
	}
	// The labels of the pod's author are JSON within an annotation.
	labels := make(map[string]string)
	if text := annotations[crio+"Labels"]; text != "" && json.Unmarshal([]byte(text), &labels) == nil {
		d.labels = labels
	}
	return d, nil
}

// describePodman takes the name from the list of the storage, since the bundle does not have it.
func describePodman(root, id string, annotations map[string]string, volumes []string) (description, error) {
	d := description{runtime: model.Podman, labels: annotations, volumes: volumes}
	for _, name := range []string{"containers.json", "volatile-containers.json"} {
		var list []struct {
			ID       string   `json:"id"`
			Names    []string `json:"names"`
			Metadata string   `json:"metadata"`
		}
		if err := readJSON(filepath.Join(root, name), &list); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			return d, err
		}
		for _, c := range list {
			if c.ID != id {
				continue
			}
			var metadata struct {
				ImageName string `json:"image-name"`
			}
			if len(c.Names) > 0 {
				d.name = c.Names[0]
			}
			if json.Unmarshal([]byte(c.Metadata), &metadata) == nil {
				d.image = metadata.ImageName
			}
			return d, nil
		}
	}
	return d, nil
}

func readBundle(name string) (annotations map[string]string, volumes []string, err error) {
	var b bundle
	if err := readJSON(name, &b); err != nil {
		return nil, nil, err
	}
	return nonNil(b.Annotations), bundleVolumes(b.Mounts), nil
}

func readJSON(name string, into any) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("reading what a runtime wrote: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, bundleLimit+1))
	if err != nil {
		return fmt.Errorf("reading %q: %w", name, err)
	}
	if len(text) > bundleLimit {
		return fmt.Errorf("reading %q: more than %d bytes", name, bundleLimit)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decoding %q: %w", name, err)
	}
	return nil
}

func first(values map[string]string, keys ...string) string {
	for _, key := range keys {
		if value := values[key]; value != "" {
			return value
		}
	}
	return ""
}
