package ingest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"outsight/internal/model"
)

// oldAgents are agents that send series instead of frames, as those before frames did. Their series are stored, and maps
// do not show them.
type oldAgents struct {
	// mu guards the rest.
	mu sync.Mutex
	// last is when a host was heard of last.
	last map[string]time.Time
}

// Bounds of what is said of old agents.
const (
	maxOldAgents  = 1000
	oldAgentsSeen = 10 * time.Minute
	namedAgents   = 5
)

// noteOldAgent notes who sent a batch, and logs it once.
func (i *Ingest) noteOldAgent(b *Batch) {
	if i.options.Frames == nil || len(b.Series) == 0 {
		return
	}
	host := ""
	for _, l := range b.Series[0].Labels {
		if l.Name == "host" {
			host = l.Value
		}
	}
	o := &i.oldAgents
	o.mu.Lock()
	defer o.mu.Unlock()
	_, known := o.last[host]
	if !known && len(o.last) >= maxOldAgents {
		return
	}
	if o.last == nil {
		o.last = map[string]time.Time{}
	}
	o.last[host] = i.options.Now()
	if !known {
		i.options.Logger.Warn("an agent sends series, as agents before frames did: they are stored, but maps do not show "+
			"this host until its agent is updated", "host", host)
	}
}

// Features are what does not work as it should.
func (i *Ingest) Features() []model.Feature {
	o := &i.oldAgents
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.last, func(_ string, at time.Time) bool { return i.options.Now().Sub(at) > oldAgentsSeen })
	if len(o.last) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(o.last))
	shown := strings.Join(names[:min(len(names), namedAgents)], ", ")
	if len(names) > namedAgents {
		shown += fmt.Sprintf(" and %d more", len(names)-namedAgents)
	}
	return []model.Feature{{Name: "ingest/agents", Purpose: "maps of all hosts", State: model.FeatureAbsent,
		Reason: "agents of an older version send series, which maps do not show: " + shown,
		Remedy: "update these agents"}}
}
