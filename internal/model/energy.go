package model

// EnergyCounter is the energy that is attributed to a container, cumulative, in one domain by one meter.
type EnergyCounter struct {
	// Domain is "core", "package", "dram" or "psys". A package has its cores in it, and psys, the whole
	// machine, has all of them: they must not be added up.
	Domain string
	// Source is what measured it: "powercap", "perf", "hwmon", or "model" where it is an estimate.
	Source      string
	MicroJoules uint64
}

// EnergyPart is what a host used in one domain by one meter. The parts add up to what was measured.
type EnergyPart struct {
	Domain, Source string
	// Containers is what was attributed to containers, Idle what the machine would have drawn without any
	// work, System what processes outside of containers used. All in microjoules.
	Containers, Idle, System uint64
}

// EnergyMeter is what measures now.
type EnergyMeter struct {
	Source string
	// Detail is the CPU family whose coefficients the model has, or what kind of device it is.
	Detail string
	// Error is the relative error of the host's energy where that is known to be large; else 0.
	Error float64
	// Domains that it measures.
	Domains []string
	// Others are the meters that would have come before it, with the reason why they did not.
	Others []string
}

// EnergySample is the energy of a host.
type EnergySample struct {
	Meter EnergyMeter
	Parts []EnergyPart
}
