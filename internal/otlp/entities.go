package otlp

import "outsight/internal/model"

// ContainerLabels are the labels that all series of a container have, in order.
func ContainerLabels(host string, c *model.Container) []model.Label { return containerLabels(host, c) }

// EdgeLabels are the same of an edge.
func EdgeLabels(host string, e *model.Edge) []model.Label { return edgeLabels(host, e) }

// EndpointLabels are the same of an endpoint of an edge with these labels.
func EndpointLabels(edge []model.Label, e *model.Endpoint) []model.Label {
	return labels(append(endpointLabels(e), edge...)...)
}
