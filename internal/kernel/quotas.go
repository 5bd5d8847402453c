package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"outsight/internal/model"
)

// The tables in which control groups have quotas, in the order of enum quota in edges.h.
const (
	quotaEdges = iota
	quotaListeners
	quotaEndpoints
	quotaPairs
	quotaStreams
)

// quotaNames are what is over a quota, as users see it.
var quotaNames = [...]string{"edges", "listeners", "endpoints", "connection_pairs", "http2_streams"}

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
func (p *Probes) prepareQuotas(spec *ebpf.CollectionSpec) error {
	o, limits := p.options, quotaLimits(&p.options)
	groups := uint32(2 * (o.MaxCgroups + o.MaxEdges))
	for _, name := range []string{"owner_uses", "owner_pairs", "owner_streams", "owner_flows", "quota_drops"} {
		spec.Maps[name].MaxEntries = groups
	}
	return errors.Join(
		spec.Variables["max_owner_edges"].Set(limits[quotaEdges]),
		spec.Variables["max_owner_listeners"].Set(limits[quotaListeners]),
		spec.Variables["max_owner_endpoints"].Set(limits[quotaEndpoints]),
		spec.Variables["max_owner_pairs"].Set(uint32(max(o.MaxConnections/4, 64))),
		spec.Variables["max_owner_streams"].Set(uint32(max(o.MaxStreams/4, 64))),
		spec.Variables["max_owner_flows"].Set(uint32(max(o.MaxFlows/4, 16))))
}

func quotaLimits(o *Options) [3]uint32 {
	return [3]uint32{uint32(o.MaxGroupEdges), uint32(max(o.MaxListeners/8, 64)), uint32(max(o.MaxEndpoints/4, 64))}
}

func newQuotaReader(maps *ebpf.Collection, o *Options) *quotaReader {
	return &quotaReader{
		uses: maps.Maps["owner_uses"], drops: maps.Maps["quota_drops"], pairs: maps.Maps["owner_pairs"],
		streams: maps.Maps["owner_streams"], flows: maps.Maps["owner_flows"],
		limits: quotaLimits(o), used: make(map[uint64]edgesOwnerUse),
	}
}

// begin begins to count one kind of entries anew.
func (q *quotaReader) begin(which int) {
	for owner, u := range q.used {
		u.Used[which] = 0
		if q.used[owner] = u; u == (edgesOwnerUse{}) {
			delete(q.used, owner)
		}
	}
}

func (q *quotaReader) has(owner uint64, which int) {
	u := q.used[owner]
	u.Used[which]++
	q.used[owner] = u
}

// settle tells the kernel what was counted. Groups of one container have one quota: each is said to have what
// all of them have.
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
	told, err := readAll[uint64, edgesOwnerUse](q.uses)
	if err != nil {
		return fmt.Errorf("reading what control groups have: %w", err)
	}
	var errs []error
	for owner, u := range told {
		if want := accounts[q.accountOf(owner)]; want == (edgesOwnerUse{}) {
			errs = append(errs, ignoreMissing(q.uses.Delete(owner)))
		} else if u != want {
			errs = append(errs, q.uses.Update(owner, want, ebpf.UpdateAny))
		}
	}
	for owner := range q.used {
		if _, known := told[owner]; !known {
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

// settleFlows makes what the sweeps have found what groups have: of entries that were evicted, nobody was told.
// Groups of one container have one quota.
func (q *quotaReader) settleFlows() error {
	told, err := readAll[uint64, edgesFlowUse](q.flows)
	if err != nil {
		return fmt.Errorf("reading what control groups have of UDP flows: %w", err)
	}
	accounts := make(map[uint64][2]uint32, len(told))
	for owner, u := range told {
		sum := accounts[q.accountOf(owner)]
		for which, n := range u.Found {
			sum[which] += n
		}
		accounts[q.accountOf(owner)] = sum
	}
	var errs []error
	for owner := range told {
		if sum := accounts[q.accountOf(owner)]; sum == ([2]uint32{}) {
			errs = append(errs, ignoreMissing(q.flows.Delete(owner)))
		} else {
			errs = append(errs, q.flows.Update(owner, edgesFlowUse{Used: sum}, ebpf.UpdateAny))
		}
	}
	return errors.Join(errs...)
}

// ReadOverQuota tells which control groups would have had more than their quotas, as of the last ReadEdges. The
// counts only grow while a group is there.
func (p *Probes) ReadOverQuota() []model.OverQuota {
	if p.edges == nil {
		return nil
	}
	return p.edges.quotas.over
}

// ShareQuotas lets control groups with the same account have one quota. It is for the goroutine that reads.
func (p *Probes) ShareQuotas(account func(model.CgroupID) model.CgroupID) {
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
