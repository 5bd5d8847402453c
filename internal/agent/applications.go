package agent

import "outsight/internal/model"

// offerMetrics hands a process's file with metrics on. Who reads it from outside is told in the next snapshot.
func (a *Agent) offerMetrics(e model.CgroupEvent) {
	if a.sources.Applications != nil {
		defer a.spent.on(partApplications)()
		if a.sources.Applications.Offer(e) {
			a.wake()
		}
	}
}

// readApplications reads what processes count themselves.
func (a *Agent) readApplications() {
	if a.sources.Applications == nil {
		return
	}
	defer a.spent.on(partApplications)()
	a.sources.Applications.Read(func(id model.CgroupID) string {
		if c := a.sources.Registry.Lookup(id); c != nil {
			return c.ID
		}
		return model.HostContainerID
	})
}
