package kubernetes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

// HistoryOptions of a History. The zero value keeps 30 days in 256 MiB.
type HistoryOptions struct {
	// Keep is for how long what has ended is remembered (default 30 days).
	Keep time.Duration
	// MaxVersions bounds the objects that are remembered, each as often as it changed (default 500,000), MaxBytes the
	// file (default 256 MiB). What ended first is forgotten first, and counted in Drops.
	MaxVersions int
	MaxBytes    int64
	Logger      *slog.Logger
}

// History remembers what a Cluster knew, with the time for which it is true: a name that was learnt late is right from
// the pod's beginning, and of an address that several pods had one after another each time has its own. It is kept in a
// file; docs/format/names.md is its page.
type History struct {
	options HistoryOptions
	file    *historyFile
	now     func() time.Time

	// mu guards everything below.
	mu sync.Mutex
	// index has all versions, as the tables of a cluster that asks nobody.
	index    *Cluster
	versions map[string]*version
	// newest are the versions that have not ended, by kind and key.
	newest map[string]*version
	// known are the names of all objects that there ever were, since the file was opened or before.
	known map[string]bool
	full  uint64
}

// version is one state of an object.
type version struct {
	record
	remove func()
}

// record is a version as the file has it. Times are in milliseconds since 1970; Until is 0 where it has not ended.
type record struct {
	Kind  string          `json:"kind"`
	Key   string          `json:"key"`
	From  int64           `json:"from"`
	Until int64           `json:"until,omitempty"`
	Is    json.RawMessage `json:"is"`
}

// number tells versions apart. A pod has one: its identity is the same from its beginning to its end.
func (r *record) number() string {
	if r.Kind == kindPod {
		return r.name()
	}
	return fmt.Sprintf("%s@%d", r.name(), r.From)
}

func (r *record) name() string { return r.Kind + "/" + r.Key }

// OpenHistory opens the history in a file, which is made where it is not there.
func OpenHistory(path string, o HistoryOptions) (*History, error) {
	o.Keep, o.MaxVersions = cmp.Or(o.Keep, 30*24*time.Hour), cmp.Or(o.MaxVersions, 500_000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 256<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &History{options: o, now: time.Now, index: newTables(Options{}.withDefaults()), versions: map[string]*version{},
		newest: map[string]*version{}, known: map[string]bool{}}
	file, lost, err := openHistoryFile(path, func(r record) {
		if err := h.set(r); err != nil {
			o.Logger.Warn("the history of names has what cannot be read", "kind", r.Kind, "key", r.Key, "error", err)
		}
	})
	if err != nil {
		return nil, err
	}
	if lost > 0 {
		o.Logger.Warn("the end of the history of names was not whole and is left out", "file", path, "bytes", lost)
	}
	h.file = file
	return h, nil
}

// set adds a version, or replaces it.
func (h *History) set(r record) error {
	name, number := r.name(), r.number()
	before := h.versions[number]
	add, remove, err := h.decode(&r)
	if err != nil {
		return err
	}
	if before != nil {
		before.remove()
	}
	v := &version{r, remove}
	add()
	h.versions[number], h.known[name] = v, true
	switch current := h.newest[name]; {
	case r.Until == 0:
		h.newest[name] = v
	case current == before && before != nil:
		delete(h.newest, name)
	}
	return nil
}

// note remembers what an object is now, from a time on if that is not known already. It answers what to write.
func (h *History) note(kind, key string, from time.Time, is any) ([]record, error) {
	text, err := json.Marshal(is)
	if err != nil {
		return nil, fmt.Errorf("BUG: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.newest[kind+"/"+key]
	next := record{Kind: kind, Key: key, From: from.UnixMilli(), Is: text}
	switch {
	case current == nil:
		if kind != kindPod && h.known[next.name()] { // it was removed meanwhile
			next.From = h.now().UnixMilli()
		}
		return h.enter(next)
	case bytes.Equal(current.Is, text):
		return nil, nil
	case kind == kindPod:
		next.From = min(next.From, current.From)
		return h.enter(next)
	}
	ended := current.record
	ended.Until = h.now().UnixMilli()
	next.From = max(ended.Until, ended.From+1)
	return h.enter(ended, next)
}

// end remembers that an object is there no more since a time.
func (h *History) end(kind, key string, at time.Time) ([]record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.newest[kind+"/"+key]
	if current == nil {
		return nil, nil
	}
	ended := current.record
	ended.Until = max(at.UnixMilli(), ended.From+1)
	return h.enter(ended)
}

func (h *History) enter(all ...record) ([]record, error) {
	for _, r := range all {
		if err := h.set(r); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Container is what Kubernetes calls a container, by its runtime's id.
func (h *History) Container(id string) (model.PodIdentity, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.index.byContainer[id]; !known {
		return model.PodIdentity{}, false
	}
	return h.index.Identify(id, "")
}

// End is what Kubernetes called the end of an edge that had an address at a time. A server's end also has service, the
// address and port that was dialled; it is the zero AddrPort for a client's end.
func (h *History) End(at time.Time, address netip.Addr, service netip.AddrPort, transport model.Transport) (
	end model.NamedEnd, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := namer{Cluster: h.index, at: at, past: at, behind: map[string]backing{}}
	var where spot
	if service.IsValid() {
		where = spot{service.Addr().Unmap().WithZone(""), endpoint{service.Port(), transport.String()}}
	}
	labels := n.end(&addition{}, "", address.String(), where)
	for _, l := range labels {
		switch l.Name {
		case otlp.LabelNamespace:
			end.Namespace = l.Value
		case otlp.LabelPod:
			end.Pod = l.Value
		case otlp.LabelContainer:
			end.Container = l.Value
		case otlp.LabelWorkload:
			end.Workload = l.Value
		case otlp.LabelWorkloadKind:
			end.WorkloadKind = l.Value
		case otlp.LabelNode:
			end.Node = l.Value
		}
	}
	if where.port != 0 {
		end.ServiceNamespace, end.Service, _ = strings.Cut(n.service(where), "/")
	}
	return end, end != model.NamedEnd{}
}

// Drops are the history's bounds.
func (h *History) Drops() []model.Drop {
	h.mu.Lock()
	defer h.mu.Unlock()
	return []model.Drop{{Name: "kubernetes/history", Count: h.full, Used: uint64(len(h.versions)),
		Capacity: uint64(h.options.MaxVersions)}}
}

// trim forgets what ended too long ago, and what ended first where there is too much. It reports whether it did.
func (h *History) trim(most int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := make([]*version, 0, len(h.versions))
	for _, v := range h.versions {
		if v.Until != 0 {
			ended = append(ended, v)
		}
	}
	slices.SortFunc(ended, func(a, b *version) int {
		return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.number(), b.number()))
	})
	oldest := h.now().Add(-h.options.Keep).UnixMilli()
	trimmed := 0
	for _, v := range ended {
		if v.Until >= oldest {
			if len(h.versions) <= most {
				break
			}
			h.full++
		}
		v.remove()
		delete(h.versions, v.number())
		trimmed++
	}
	return trimmed > 0
}

// records are all versions, in the order of their beginnings.
func (h *History) records() []record {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]record, 0, len(h.versions))
	for _, v := range h.versions {
		all = append(all, v.record)
	}
	slices.SortFunc(all, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.number(), b.number()))
	})
	return all
}

// Write writes records to the file, and makes it anew where it has grown to twice what is remembered.
func (h *History) write(all []record) error {
	if len(all) == 0 {
		return nil
	}
	if err := h.file.append(all); err != nil {
		return err
	}
	if h.file.size < max(2*h.file.compact, h.options.MaxBytes/16) && h.file.size <= h.options.MaxBytes {
		return nil
	}
	h.trim(h.options.MaxVersions)
	if err := h.file.rewrite(h.records()); err != nil {
		return err
	}
	for h.file.size > h.options.MaxBytes/2 && h.trim(len(h.versions)/2) {
		if err := h.file.rewrite(h.records()); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the file.
func (h *History) Close() error { return h.file.close() }
