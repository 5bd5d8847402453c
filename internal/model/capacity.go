package model

import "time"

// Capacity is what the path from one container of a host to another carried when that was last measured, which is on
// request alone.
type Capacity struct {
	// From and To are the containers' IDs, FromName and ToName what people call them; the host is HostContainerID.
	From     string `json:"from"`
	To       string `json:"to"`
	FromName string `json:"from_name"`
	ToName   string `json:"to_name"`
	// BytesPerSecond arrived at To, in the second half of a burst of TCP.
	BytesPerSecond float64   `json:"bytes_per_second"`
	Measured       time.Time `json:"measured"`
}

func (c *Capacity) labels() []Label {
	return []Label{NewLabel("from", c.FromName), NewLabel("to", c.ToName), NewLabel("from_id", c.From), NewLabel("to_id", c.To)}
}

// ofCapacities reads each capacity that a host knows.
func ofCapacities(read func(*Capacity) float64) func(*Snapshot, *Sink) {
	return func(s *Snapshot, to *Sink) {
		for i := range s.Capacities {
			to.Add(read(&s.Capacities[i]), s.Capacities[i].labels()...)
		}
	}
}

// capacityRows are the metrics of capacities.
var capacityRows = []Row[Snapshot]{
	{Name: "outsight_path_capacity_bytes_per_second", OTel: "outsight.path.capacity", Unit: "By/s", Kind: Gauge,
		Help: "What the path from one container of a host to another carried when somebody last measured it; nothing " +
			"measures it by itself",
		Labels: []string{"from", "to", "from_id", "to_id"},
		Each:   ofCapacities(func(c *Capacity) float64 { return c.BytesPerSecond })},
	{Name: "outsight_path_capacity_measured_timestamp_seconds", OTel: "outsight.path.capacity.measured_timestamp", Unit: "s",
		Kind: Gauge, Help: "When that was, in seconds since 1970",
		Labels: []string{"from", "to", "from_id", "to_id"},
		Each:   ofCapacities(func(c *Capacity) float64 { return float64(c.Measured.UnixMilli()) / 1e3 })},
}
