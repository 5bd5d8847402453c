package kubernetes

import (
	"errors"
	"fmt"

	"outsight/internal/model"
)

// The modes of Open that are no path.
const (
	Auto      = "auto"
	Off       = "off"
	Incluster = "in-cluster"
)

// Open makes the Cluster that mode names: that of the service account of the pod that this is
// (Incluster), the same if there is one (Auto), none (Off), or that of a kubeconfig file. Where it
// makes none, the Cluster is nil and the Feature says why. It fails where what was asked for cannot
// be had; Auto asks for nothing.
func Open(mode string, o Options) (*Cluster, model.Feature, error) {
	const remedy = `run it in a pod with a service account, or name a kubeconfig file with --kubernetes`
	if mode == Off {
		return nil, Absent(model.FeatureOff, "--kubernetes is off", "leave out --kubernetes off"), nil
	}
	var config Config
	var err error
	if mode == Auto || mode == Incluster || mode == "" {
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
	case mode == Incluster && errors.Is(err, ErrNotInCluster):
		return nil, model.Feature{}, fmt.Errorf("--kubernetes is in-cluster: %w", err)
	case mode == Auto || mode == "":
		return nil, Absent(model.FeatureAbsent, err.Error(), remedy), nil
	}
	return nil, model.Feature{}, err
}
