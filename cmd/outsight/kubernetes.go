package main

import (
	"cmp"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"outsight/internal/kubernetes"
	"outsight/internal/model"
)

// kubernetesFlags are what every command that knows a cluster has.
type kubernetesFlags struct {
	mode, node string
}

func (f *kubernetesFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.mode, "kubernetes", kubernetes.Auto,
		"where names of pods and services are from: auto (the pod's service account, if there is one), in-cluster, off, or "+
			"the path of a kubeconfig")
}

func (f *kubernetesFlags) addNode(c *cobra.Command) {
	f.add(c)
	c.Flags().StringVar(&f.node, "node-name", os.Getenv("NODE_NAME"),
		"what Kubernetes calls this host, if it is not the host's name")
}

// cluster is the whole cluster; nil where there is none, and the feature says why.
func (f *kubernetesFlags) cluster(log *slog.Logger) (*kubernetes.Cluster, model.Feature, error) {
	return kubernetes.Open(f.mode, kubernetes.Options{Logger: log})
}

// thisNode is what an agent needs: the pods of this host. It is nil where there is no cluster.
func (f *kubernetesFlags) thisNode(log *slog.Logger) (*kubernetes.Cluster, error) {
	return kubernetes.OpenNode(cmp.Or(f.mode, kubernetes.Off), f.node, log)
}
