package model

import "net/netip"

var containerNetworkRows = []Row[ContainerSample]{
	{Name: "container_network_receive_bytes_total", OTel: "container.network.io", Unit: "By", Kind: Counter,
		Help: "Bytes received by the interfaces of the container's network namespace, loopback not included",
		Columns: []Column[ContainerSample]{{Name: "receive_bytes", File: true,
			Count: ofNetwork(func(n *NetworkCounters) uint64 { return n.ReceiveBytes }),
			Shown: []Number{{Key: "network_receive_bytes", Title: "Network in", Unit: "B/s", Group: GroupNetwork,
				Formula: Rate}}}}},
	{Name: "container_network_transmit_bytes_total", OTel: "container.network.io", Unit: "By", Kind: Counter,
		Help: "Bytes sent by the interfaces of the container's network namespace, loopback not included",
		Columns: []Column[ContainerSample]{{Name: "transmit_bytes", File: true,
			Count: ofNetwork(func(n *NetworkCounters) uint64 { return n.TransmitBytes }),
			Shown: []Number{{Key: "network_transmit_bytes", Title: "Network out", Unit: "B/s", Group: GroupNetwork,
				Formula: Rate}}}}},
	{Name: "container_network_receive_packets_total", OTel: "container.network.packet.count", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets received",
		Columns: []Column[ContainerSample]{{Name: "receive_packets", File: true,
			Count: ofNetwork(func(n *NetworkCounters) uint64 { return n.ReceivePackets }),
			Shown: []Number{{Key: "receive_packets", Title: "Packets in", Unit: "/s", Group: GroupNetwork,
				Formula: Rate}}}}},
	{Name: "container_network_transmit_packets_total", OTel: "container.network.packet.count", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets sent",
		Columns: []Column[ContainerSample]{{Name: "transmit_packets", File: true,
			Count: ofNetwork(func(n *NetworkCounters) uint64 { return n.TransmitPackets }),
			Shown: []Number{{Key: "transmit_packets", Title: "Packets out", Unit: "/s", Group: GroupNetwork,
				Formula: Rate}}}}},
	{Name: "container_network_receive_errors_total", OTel: "container.network.errors", Unit: "{error}", Kind: Counter,
		Help: "Errors while receiving",
		Columns: []Column[ContainerSample]{{Name: "receive_errors", File: true,
			Count: ofNetwork(func(n *NetworkCounters) uint64 { return n.ReceiveErrors }),
			Shown: []Number{{Key: "network_errors", Title: "Network errors", Group: GroupNetwork,
				Of: []string{"receive_errors", "transmit_errors"}}}}}},
	{Name: "container_network_transmit_errors_total", OTel: "container.network.errors", Unit: "{error}", Kind: Counter,
		Graph: true,
		Help:  "Errors while sending",
		Columns: []Column[ContainerSample]{{Name: "transmit_errors", File: true,
			Count: ofNetwork(func(n *NetworkCounters) uint64 { return n.TransmitErrors })}}},
	{Name: "container_network_receive_packets_dropped_total", OTel: "container.network.packet.dropped",
		Unit: "{packet}", Kind: Counter,
		Help: "Packets dropped while receiving",
		Columns: []Column[ContainerSample]{{Name: "receive_dropped", File: true,
			Count: ofNetwork(func(n *NetworkCounters) uint64 { return n.ReceiveDropped }),
			Shown: []Number{{Key: "network_dropped", Title: "Packets dropped", Group: GroupNetwork,
				Of: []string{"receive_dropped", "transmit_dropped"}}}}}},
	{Name: "container_network_transmit_packets_dropped_total", OTel: "container.network.packet.dropped",
		Unit: "{packet}", Kind: Counter,
		Graph: true, Help: "Packets dropped while sending",
		Columns: []Column[ContainerSample]{{Name: "transmit_dropped", File: true,
			Count: ofNetwork(func(n *NetworkCounters) uint64 { return n.TransmitDropped })}}},
	{Name: "container_network_tcp_zero_windows_total", OTel: "container.network.tcp.zero_windows", Unit: "{window}",
		Kind: Counter,
		Help: "Times that a receiver in the container's network namespace closed its window because its buffer was full; read " +
			"every 30 s",
		Columns: []Column[ContainerSample]{{Name: "zero_windows", File: true,
			Count: ofTCP(func(t *TCPCounters) uint64 { return t.ZeroWindows }),
			Shown: []Number{{Key: "zero_windows", Title: "Receive windows closed", Group: GroupNetwork,
				Meaning: "Times that a receiver closed its window: it did not read fast enough"}}}}},
	{Name: "container_network_tcp_zero_windows_ended_total", OTel: "container.network.tcp.zero_windows.ended",
		Unit: "{window}", Kind: Counter,
		Help: "Times that a receiver in the container's network namespace opened a closed window again; read every 30 s",
		Columns: []Column[ContainerSample]{{Name: "zero_windows_ended", File: true,
			Count: ofTCP(func(t *TCPCounters) uint64 { return t.ZeroWindowsEnded })}}},
	{Name: "container_network_tcp_zero_window_drops_total", OTel: "container.network.tcp.zero_window_drops",
		Unit: "{segment}", Kind: Counter,
		Help: "Segments dropped because they arrived at a closed window; read every 30 s",
		Columns: []Column[ContainerSample]{{Name: "zero_window_drops", File: true,
			Count: ofTCP(func(t *TCPCounters) uint64 { return t.ZeroWindowDrops })}}},
	{Name: "container_network_tcp_listen_overflows_total", OTel: "container.network.tcp.listen_overflows",
		Unit: "{connection}", Kind: Counter,
		Help: "Attempts to connect that found the accept queue of a socket in the container's network namespace full; read " +
			"every 30 s",
		Columns: []Column[ContainerSample]{{Name: "listen_overflows", File: true,
			Count: ofTCP(func(t *TCPCounters) uint64 { return t.ListenOverflows }),
			Shown: []Number{{Key: "listen_overflows", Title: "Accept queue overflows", Group: GroupNetwork,
				Meaning: "Connections that found the accept queue full"}}}}},
	{Name: "container_listener_drops_total", OTel: "container.listener.drops", Unit: "{connection}", Kind: Counter,
		Help:   "Attempts to connect that were dropped at a listening TCP address, because its accept queue was full",
		Labels: []string{"service"}, Each: listenerDrops},
	{Name: AcceptQueueLength, OTel: "container.listener.queue", Unit: "{connection}", Kind: Gauge,
		Help:   "Connections that wait to be accepted at a listening TCP address; of several sockets those of the fullest",
		Labels: []string{"service"}, Each: acceptQueues(func(q *AcceptQueue) uint64 { return q.Queued })},
	{Name: AcceptQueueLimit, OTel: "container.listener.queue.limit", Unit: "{connection}", Kind: Gauge,
		Help:   "Connections that fit there: one more than the backlog of listen(2), or than net.core.somaxconn",
		Labels: []string{"service"}, Each: acceptQueues(func(q *AcceptQueue) uint64 { return q.QueueLimit })},
}

// Metrics of the queues of listening addresses.
const (
	AcceptQueueLength = "container_listener_queue_connections"
	AcceptQueueLimit  = "container_listener_queue_limit_connections"
)

var (
	ofNetwork = in(func(s *ContainerSample) *NetworkCounters { return s.Network })
	ofTCP     = in(func(s *ContainerSample) *TCPCounters { return s.TCP })
)

func listenerDrops(s *ContainerSample, to *Sink) {
	for _, l := range s.Listeners {
		to.Add(float64(l.Drops), NewLabel("service", ServiceName(l.Address)))
	}
}

func acceptQueues(number func(*AcceptQueue) uint64) func(*ContainerSample, *Sink) {
	return func(s *ContainerSample, to *Sink) {
		for i := range s.Listeners {
			if l := &s.Listeners[i]; l.QueueLimit > 0 {
				to.Add(float64(number(&l.AcceptQueue)), NewLabel("service", ServiceName(l.Address)))
			}
		}
	}
}

// ServiceName is the label of a service's address; many services that were put together have none.
func ServiceName(service netip.AddrPort) string {
	if !service.IsValid() {
		return "others"
	}
	return service.String()
}
