package place

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Weights say how much each part of a placement's cost counts. All parts are shares: 0 is nothing, 1 is all of it.
type Weights struct {
	// Traffic is of the bytes that cross hosts, of all bytes between containers.
	Traffic float64 `json:"traffic" yaml:"traffic"`
	// Requests is of the weighted requests that cross hosts.
	Requests float64 `json:"requests" yaml:"requests"`
	// Uplink is of the bytes that a host exchanges with others, of all between containers: the fourth root of the sum of
	// the hosts' fourth powers, in which the busiest one counts most.
	Uplink float64 `json:"uplink" yaml:"uplink"`
	// Hosts is of the hosts in use.
	Hosts float64 `json:"hosts" yaml:"hosts"`
	// Balance is of the variance of the hosts' CPU utilisation.
	Balance float64 `json:"balance" yaml:"balance"`
	// Energy is of the power that all hosts would take when all of them are used up.
	Energy float64 `json:"energy" yaml:"energy"`
	// Moves is of the containers that move.
	Moves float64 `json:"moves" yaml:"moves"`
}

// Presets are weights by their names; the empty name is the default.
var Presets = map[string]Weights{
	"":               {Traffic: 1, Requests: 0.5, Uplink: 0.5, Balance: 0.5, Moves: 0.1},
	"least-traffic":  {Traffic: 1, Balance: 0.05, Moves: 0.05},
	"fewest-hosts":   {Traffic: 0.2, Hosts: 1, Moves: 0.02},
	"lowest-latency": {Requests: 1, Balance: 0.5, Moves: 0.05},
	"lowest-energy":  {Traffic: 0.1, Energy: 1, Moves: 0.02},
}

// PresetNames are those of Presets that have one, in order.
func PresetNames() []string {
	var names []string
	for name := range Presets {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ParseWeights takes the weights of a preset, and changes those that are named: "traffic=1", "moves=0".
func ParseWeights(preset string, changes []string) (Weights, error) {
	w, ok := Presets[preset]
	if !ok {
		return w, fmt.Errorf("preset is %q, want one of %s", preset, strings.Join(PresetNames(), ", "))
	}
	of := map[string]*float64{"traffic": &w.Traffic, "requests": &w.Requests, "uplink": &w.Uplink, "hosts": &w.Hosts, "balance": &w.Balance,
		"energy": &w.Energy, "moves": &w.Moves}
	for _, change := range changes {
		name, text, _ := strings.Cut(change, "=")
		var v float64
		if _, err := fmt.Sscanf(text, "%g", &v); of[name] == nil || err != nil {
			return w, fmt.Errorf("weight %q, want traffic, requests, uplink, hosts, balance, energy or moves, as in traffic=1", change)
		}
		*of[name] = v
	}
	return w, w.check()
}

func (w *Weights) check() error {
	sum := 0.0
	for _, v := range []float64{w.Traffic, w.Requests, w.Uplink, w.Hosts, w.Balance, w.Energy, w.Moves} {
		if !(v >= 0) || math.IsInf(v, 0) {
			return fmt.Errorf("a weight is %v, want 0 or more", v)
		}
		sum += v
	}
	if sum-w.Moves <= 0 {
		return fmt.Errorf("all weights but that of moves are 0: there is nothing to make better")
	}
	return nil
}
