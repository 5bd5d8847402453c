package kubernetes

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"outsight/internal/model"
)

// The modes of Open that are no path.
const (
	Auto  = "auto"
	Off   = "off"
	InPod = "in-cluster"
)

// Open makes the Cluster that mode names: that of the service account of the pod that this is
// (InPod), the same if there is one (Auto), none (Off), or that of a kubeconfig file. Where it
// makes none, the Cluster is nil and the Feature says why. It fails where what was asked for cannot
// be had; Auto asks for nothing.
func Open(mode string, o Options) (*Cluster, model.Feature, error) {
	const remedy = `run it in a pod with a service account, or name a kubeconfig file with --kubernetes`
	if mode == Off {
		return nil, Absent(model.FeatureOff, "--kubernetes is off", "leave out --kubernetes off"), nil
	}
	var config Config
	var err error
	if mode == Auto || mode == InPod || mode == "" {
		config, err = InCluster("")
	} else {
		config, err = ReadKubeconfig(mode)
	}
	var c *Cluster
	if err == nil {
		c, err = New(config, o)
	}
	switch {
	case err == nil:
		return c, model.Feature{}, nil
	case mode == InPod && errors.Is(err, ErrNotInCluster):
		return nil, model.Feature{}, fmt.Errorf("--kubernetes is in-cluster: %w", err)
	case mode == Auto || mode == "":
		return nil, Absent(model.FeatureAbsent, err.Error(), remedy), nil
	}
	return nil, model.Feature{}, err
}

// OpenNode makes a Cluster that knows the pods of this host alone, as Open does; nil where there is
// no cluster. node is what Kubernetes calls the host, by default the host's name.
func OpenNode(mode, node string, logger *slog.Logger) (*Cluster, error) {
	if node == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("finding the node's name: %w", err)
		}
		node = strings.ToLower(name) // as kubelets do
	}
	c, _, err := Open(mode, Options{Node: node, Logger: logger})
	return c, err
}
