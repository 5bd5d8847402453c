package place

import "fmt"

// checkPower refuses to weigh energy where the power of a host is not known.
func (p *Problem) checkPower(w Weights) error {
	if w.Energy == 0 {
		return nil
	}
	for _, h := range p.Hosts {
		if h.IdleWatts <= 0 || h.WattsPerCore <= 0 {
			return fmt.Errorf("energy cannot be weighed: no meter of %q tells what it takes", h.Name)
		}
	}
	return nil
}
