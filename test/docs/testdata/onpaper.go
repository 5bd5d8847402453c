package model

// The rows of metrics that are on paper alone: TestRowsOnPaper compiles this file into package model.
func init() {
	ContainerRows = append(ContainerRows, Row[ContainerSample]{Name: "container_on_paper_total",
		OTel: "container.on_paper", Unit: "{sheet}", Kind: Counter, Help: "Sheets of a container, on paper",
		Columns: []Column[ContainerSample]{{Name: "on_paper",
			Count: ofCPU(func(c *CPUCounters) uint64 { return 3 * c.Voluntary }),
			Shown: []Number{{Key: "on_paper", Title: "Sheets", Unit: "/s", Group: GroupCPU, Formula: Rate,
				Meaning: "What a container has on paper"}}}}})
	EdgeRows = append(EdgeRows, Row[Edge]{Name: "outsight_edge_on_paper_total", OTel: "outsight.edge.on_paper",
		Unit: "{sheet}", Kind: Counter, Help: "Sheets of an edge, on paper",
		Columns: []Column[Edge]{{Name: "on_paper",
			Count: ofEdge(func(c *EdgeCounters) uint64 { return 3 * c.Opens }),
			Shown: []Number{{Key: "on_paper", Title: "Sheets", Group: GroupTrouble, Trouble: true,
				Meaning: "What an edge has on paper"}}}}})
	HostRows = append(HostRows, Row[Snapshot]{Name: "outsight_host_on_paper", OTel: "outsight.host.on_paper",
		Unit: "{sheet}", Kind: Gauge, Help: "Sheets of a host, on paper",
		Columns: []Column[Snapshot]{{Name: "on_paper", Count: ofHost(func(s *Snapshot) uint64 { return 3 * s.Self.ReadNS }),
			Shown: []Number{{Key: "on_paper", Title: "Sheets", Group: GroupHost, Formula: Level,
				Meaning: "What a host has on paper"}}}}})
}
