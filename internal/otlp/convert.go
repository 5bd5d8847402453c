package otlp

import "outsight/internal/model"

// MaxLabelBytes is the greatest length of a label's value.
const MaxLabelBytes = model.MaxLabelBytes

func endpointLabels(e *model.Endpoint) []model.Label {
	return []model.Label{label(LabelProtocol, string(e.Protocol)), label(LabelEndpoint, e.Name),
		label(LabelStatus, e.Status)}
}

func containerLabels(host string, c *model.Container) []model.Label {
	return labels(append(podLabels("", c), label(LabelHost, host), label(LabelID, c.ID), label(LabelImage, c.Image),
		label(LabelName, c.Name), label(LabelRuntime, string(c.Runtime)))...)
}

// podLabels are the labels of a container's pod, with the names that cAdvisor uses.
func podLabels(prefix string, c *model.Container) []model.Label {
	if c == nil || c.PodName == "" {
		return nil
	}
	all := []model.Label{label(prefix+LabelNamespace, c.PodNamespace), label(prefix+LabelPod, c.PodName),
		label(prefix+LabelWorkload, c.Workload), label(prefix+LabelWorkloadKind, c.WorkloadKind)}
	if c.Named() {
		all = append(all, label(prefix+LabelContainer, c.Name))
	}
	return all
}

func edgeLabels(host string, e *model.Edge) []model.Label {
	pods := append(podLabels(ClientPrefix, e.Client.Container), podLabels(ServerPrefix, e.Server.Container)...)
	return labels(append(pods, label(LabelClient, e.Client.Name()), label(LabelClientID, e.Client.ID()),
		label(LabelClientProcess, e.Client.Process), label(LabelHost, host),
		label(LabelServer, e.Server.Name()), label(LabelServerID, e.Server.ID()), label(LabelServerProcess, e.Server.Process),
		label(LabelService, model.ServiceName(e.Service)), label(LabelSide, e.Side.String()),
		label(LabelTransport, e.Transport.String()),
		label(LabelVia, e.Via))...)
}

// Label is a label with a value that any reader accepts: UTF-8, of at most MaxLabelBytes. A longer value is cut.
func Label(name, value string) model.Label { return model.NewLabel(name, value) }

func label(name, value string) model.Label { return model.NewLabel(name, value) }

func labels(all ...model.Label) []model.Label { return model.SortedLabels(all...) }
