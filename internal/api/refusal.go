package api

import (
	"time"

	"outsight/internal/model"
)

// refusal is what was refused for one reason since the server began.
type refusal struct {
	// What is "requests" or "points" of senders, or "readers"; Reason is as metrics name it.
	What   string `json:"what"`
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
	// Last is the time, From the sender's address and Said the answer of the last refusal.
	Last *time.Time `json:"last,omitempty"`
	From string     `json:"from,omitempty"`
	Said string     `json:"said,omitempty"`
}

// refusals are those of all senders, or of the tenant whose view this is.
func (s *server) refusals() []refusal {
	var all []model.Refusal
	if s.Refusals != nil {
		all = s.Refusals(s.Tenant)
	}
	if s.Tenant == "" {
		all = append(append(all, s.Auth.Refusals()...), s.Hosts.Refusals()...)
	}
	list := []refusal{}
	for _, r := range all {
		one := refusal{What: r.What, Reason: r.Reason, Count: r.Count, From: r.From, Said: r.Said}
		if !r.Last.IsZero() {
			at := r.Last.UTC()
			one.Last = &at
		}
		list = append(list, one)
	}
	return list
}
