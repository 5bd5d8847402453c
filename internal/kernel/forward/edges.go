package forward

import "outsight/internal/netns"

// edges are the indices of the interfaces at which packets come into the current network namespace from outside, and leave
// it: hardware, and what has its other end in another namespace. Those between two programs, or on top of others (TUN,
// bridges, VLANs), are on the way through it.
func edges() ([]int, error) {
	links, err := netns.Links()
	if err != nil {
		return nil, err
	}
	var all []int
	for _, l := range links {
		if !l.Loopback && (l.Peered || !l.Virtual) {
			all = append(all, l.Index)
		}
	}
	return all, nil
}
