package net

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"outsight/internal/model"
)

// quotaNames are what is over a quota, as users see it.
var quotaNames = [edgesQuotaQUOTAS]string{
	edgesQuotaQUOTA_EDGES:     "edges",
	edgesQuotaQUOTA_LISTENERS: "listeners",
	edgesQuotaQUOTA_ENDPOINTS: "endpoints",
	edgesQuotaQUOTA_PAIRS:     "connection_pairs",
	edgesQuotaQUOTA_STREAMS:   "http2_streams",
}

// quotaReader keeps the kernel's counts of what each control group has true.
type quotaReader struct {
	uses, drops, pairs, streams, flows *ebpf.Map
	// account is the group that stands for all of its container; nil where each stands for itself.
	account func(model.CgroupID) model.CgroupID
	// limits of edges, listeners and endpoints.
	limits [3]uint32
	// used is what each group has, as it was found at this reading.
	used map[uint64]edgesOwnerUse
	// crowded are the groups that have half of their quota, of each kind.
	crowded [3]map[uint64]bool
	over    []model.OverQuota
}

// prepareQuotas sizes the maps and sets the constants of quotas.h.
func (p *Net) prepareQuotas(spec *edgesSpecs) error {
	o, limits := p.options, quotaLimits(&p.options)
	groups := uint32(2 * (o.MaxCgroups + o.MaxEdges))
	for _, m := range []*ebpf.MapSpec{spec.OwnerUses, spec.OwnerPairs, spec.OwnerStreams, spec.OwnerFlows,
		spec.QuotaDrops} {
		m.MaxEntries = groups
	}
	return errors.Join(
		spec.MaxOwnerEdges.Set(limits[edgesQuotaQUOTA_EDGES]),
		spec.MaxOwnerListeners.Set(limits[edgesQuotaQUOTA_LISTENERS]),
		spec.MaxOwnerEndpoints.Set(limits[edgesQuotaQUOTA_ENDPOINTS]),
		spec.MaxOwnerPairs.Set(uint32(max(o.MaxConnections/4, 64))),
		spec.MaxOwnerStreams.Set(uint32(max(o.MaxStreams/4, 64))),
		spec.MaxOwnerFlows.Set(uint32(max(o.MaxFlows/4, 16))))
}

func quotaLimits(o *Options) [3]uint32 {
	return [3]uint32{uint32(o.MaxGroupEdges), uint32(max(o.MaxListeners/8, 64)), uint32(max(o.MaxEndpoints/4, 64))}
}

func newQuotaReader(objects *edgeObjects, o *Options) *quotaReader {
	return &quotaReader{
		uses: objects.OwnerUses, drops: objects.QuotaDrops, pairs: objects.OwnerPairs,
		streams: objects.OwnerStreams, flows: objects.OwnerFlows,
		limits: quotaLimits(o), used: make(map[uint64]edgesOwnerUse),
	}
}

// begin begins to count one kind of entries anew.
func (q *quotaReader) begin(which edgesQuota) {
	for owner, u := range q.used {
		u.Used[which] = 0
		if q.used[owner] = u; u == (edgesOwnerUse{}) {
			delete(q.used, owner)
		}
	}
}

func (q *quotaReader) has(owner uint64, which edgesQuota) {
	u := q.used[owner]
	u.Used[which]++
	q.used[owner] = u
}

// settle sets in the kernel what was counted. Groups of one container have one quota: each has what all of them have.
func (q *quotaReader) settle() error {
	accounts := make(map[uint64]edgesOwnerUse, len(q.used))
	for owner, u := range q.used {
		sum := accounts[q.accountOf(owner)]
		for which, n := range u.Used {
			sum.Used[which] += n
		}
		accounts[q.accountOf(owner)] = sum
	}
	for which, limit := range q.limits {
		q.crowded[which] = nil
		for owner := range q.used {
			if accounts[q.accountOf(owner)].Used[which] >= limit/2 {
				if q.crowded[which] == nil {
					q.crowded[which] = make(map[uint64]bool)
				}
				q.crowded[which][owner] = true
			}
		}
	}
	set, err := readAll[uint64, edgesOwnerUse](q.uses)
	if err != nil {
		return fmt.Errorf("reading what control groups have: %w", err)
	}
	var errs []error
	for owner, u := range set {
		if want := accounts[q.accountOf(owner)]; want == (edgesOwnerUse{}) {
			errs = append(errs, ignoreMissing(q.uses.Delete(owner)))
		} else if u != want {
			errs = append(errs, q.uses.Update(owner, want, ebpf.UpdateAny))
		}
	}
	for owner := range q.used {
		if _, known := set[owner]; !known {
			errs = append(errs, q.uses.Update(owner, accounts[q.accountOf(owner)], ebpf.UpdateAny))
		}
	}
	return errors.Join(append(errs, q.readOver())...)
}

func (q *quotaReader) accountOf(owner uint64) uint64 {
	if q.account == nil {
		return owner
	}
	return uint64(q.account(model.CgroupID(owner)))
}

func (q *quotaReader) readOver() error {
	found, err := readAll[uint64, edgesOwnerDrops](q.drops)
	if err != nil {
		return fmt.Errorf("reading what is over quotas: %w", err)
	}
	q.over = nil
	for owner, d := range found {
		for which, n := range d.Over {
			if n > 0 {
				q.over = append(q.over, model.OverQuota{Owner: model.CgroupID(owner), Of: quotaNames[which], Count: n})
			}
		}
	}
	return nil
}

// forget gives up what is kept of a removed control group, but for what it has.
func (q *quotaReader) forget(id model.CgroupID) {
	_ = q.drops.Delete(uint64(id))
	_ = q.pairs.Delete(uint64(id))
	_ = q.streams.Delete(uint64(id))
}

// settleFlows makes what the sweeps have found what groups have: the kernel does not report what it evicts.
// Groups of one container have one quota.
func (q *quotaReader) settleFlows() error {
	found, err := readAll[uint64, edgesFlowUse](q.flows)
	if err != nil {
		return fmt.Errorf("reading what control groups have of UDP flows: %w", err)
	}
	accounts := make(map[uint64][2]uint32, len(found))
	for owner, u := range found {
		sum := accounts[q.accountOf(owner)]
		for which, n := range u.Found {
			sum[which] += n
		}
		accounts[q.accountOf(owner)] = sum
	}
	var errs []error
	for owner := range found {
		if sum := accounts[q.accountOf(owner)]; sum == ([2]uint32{}) {
			errs = append(errs, ignoreMissing(q.flows.Delete(owner)))
		} else {
			errs = append(errs, q.flows.Update(owner, edgesFlowUse{Used: sum}, ebpf.UpdateAny))
		}
	}
	return errors.Join(errs...)
}

// ReadOverQuota lists which control groups would have had more than their quotas, as of the last ReadEdges. The
// counts only grow while a group is there.
func (p *Net) ReadOverQuota() []model.OverQuota {
	if p.edges == nil {
		return nil
	}
	return p.edges.quotas.over
}

// ShareQuotas lets control groups with the same account have one quota. It is for the goroutine that reads.
func (p *Net) ShareQuotas(account func(model.CgroupID) model.CgroupID) {
	if p.edges != nil {
		p.edges.quotas.account = account
	}
}

// readAll reads a hash that may change meanwhile.
func readAll[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	all := make(map[K]V)
	keys, values := make([]K, 128), make([]V, 128)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			all[keys[i]] = values[i]
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
