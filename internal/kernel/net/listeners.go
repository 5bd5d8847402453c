package net

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"outsight/internal/model"
)

// ReadListeners reads all listening TCP sockets. Their drops and queues are those of the last ReadEdges.
func (p *Net) ReadListeners() ([]model.Listener, error) {
	if p.edges == nil {
		return nil, errors.New("reading listeners: no kernel program knows them")
	}
	m, quotas := p.edges.objects.Listeners, p.edges.quotas
	quotas.begin(edgesQuotaQUOTA_LISTENERS)
	keys, values := p.edges.listenerKeys[:], p.edges.listenerValues[:]
	var cursor ebpf.MapBatchCursor
	var all []model.Listener
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			quotas.has(values[i].Owner, edgesQuotaQUOTA_LISTENERS)
			all = append(all, model.Listener{
				NetNS: keys[i].Netns, Owner: model.CgroupID(values[i].Owner), Forwarder: values[i].Forwarder != 0,
				Process: processName(&values[i].Process.Name), PID: int(values[i].Process.Id),
				Address:     netip.AddrPortFrom(netip.AddrFrom16(keys[i].Address.Bytes).Unmap(), keys[i].Port),
				Drops:       values[i].Drops,
				AcceptQueue: model.AcceptQueue{Queued: uint64(values[i].Queued), QueueLimit: uint64(values[i].QueueLimit)},
			})
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			p.edges.listeners.Store(uint64(len(all)))
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("reading listeners: %w", err)
		}
	}
}
