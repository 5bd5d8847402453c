package model

// PacketDropCounters are packets that the kernel dropped.
type PacketDropCounters struct {
	// Packets is how many, whatever the reason and the device.
	Packets uint64
	// By reason and device, in that order.
	By []PacketDrops
}

// PacketDrops are packets that the kernel dropped for one reason at one device.
type PacketDrops struct {
	// Reason is the kernel's name for it, as in "SOCKET_RCVBUFF", or OtherReasons.
	Reason string
	// Device is empty where the packet had none, or its name is not known.
	Device  string
	Packets uint64
}

// OtherReasons is the reason of packets whose reasons and devices are too many to be told apart.
const OtherReasons = "other"

func (c *PacketDropCounters) each(to *Sink) {
	if c == nil {
		return
	}
	for _, d := range c.By {
		to.Add(float64(d.Packets), NewLabel("reason", d.Reason), NewLabel("device", d.Device))
	}
}

var packetDropLabels = []string{"reason", "device"}

var containerPacketDropRows = []Row[ContainerSample]{
	{Name: "container_network_dropped_packets_total", OTel: "container.network.dropped_packets", Unit: "{packet}",
		Kind: Counter,
		Help: "Packets of the container that the kernel dropped, for whatever reason and at whatever device",
		Columns: []Column[ContainerSample]{{Name: "kernel_drops",
			Count: in(func(s *ContainerSample) *PacketDropCounters { return s.Drops })(
				func(c *PacketDropCounters) uint64 { return c.Packets }),
			Shown: []Number{{Key: "kernel_drops", Title: "Packets dropped by the kernel", Unit: "/s", Group: GroupNetwork,
				Formula: Rate, Trouble: true,
				Meaning: "Packets that it sent or was to receive and that the kernel dropped: full buffers, " +
					"rules, nobody there"}}}}},
	{Name: "container_network_drops_total", OTel: "container.network.drops", Unit: "{packet}", Kind: Counter,
		Help: "Packets of the container that the kernel dropped, by the kernel's name for the reason and by the device; " +
			"the reason other has those whose reasons and devices are too many",
		Labels: packetDropLabels, Each: func(s *ContainerSample, to *Sink) { s.Drops.each(to) }},
}

var hostPacketDropRows = []Row[Snapshot]{
	{Name: "outsight_host_network_drops_total", OTel: "outsight.host.network.drops", Unit: "{packet}", Kind: Counter,
		Help: "Packets that the kernel of the host dropped, also those of containers, by the kernel's name for the reason " +
			"and by the device",
		Labels: packetDropLabels, Each: func(s *Snapshot, to *Sink) { s.Drops.each(to) }},
}
