package store

import (
	"hash/maphash"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"outsight/internal/model"
)

// entry is a live series: one that its source's last batch had.
type entry struct {
	name   string
	labels []model.Label
	hash   uint64
	// stored labels and the TSDB's reference, which spares it the look-up.
	stored labels.Labels
	ref    storage.SeriesRef
	kind   model.SeriesKind
	// key that its series had last.
	key uint64
	// batch that had the series last.
	batch uint64
	// last is the time of its newest sample, in ms.
	last int64
	// source is the source that it lives in.
	source *source
	// next entry with the same hash.
	next *entry
	// following is the entry after it in the last batch, which is nearly always the next one again.
	following *entry
}

// cache finds entries by name and labels.
type cache struct {
	seed    maphash.Seed
	entries map[uint64]*entry
	// keyed are entries by model.Series.Key.
	keyed   map[uint64]*entry
	builder labels.ScratchBuilder
}

func newCache() cache {
	return cache{seed: maphash.MakeSeed(), entries: map[uint64]*entry{}, keyed: map[uint64]*entry{},
		builder: labels.NewScratchBuilder(16)}
}

func (c *cache) hash(s *model.Series) uint64 {
	h := maphash.String(c.seed, s.Name)
	for _, l := range s.Labels {
		h = h*0x9e3779b97f4a7c15 ^ maphash.String(c.seed, l.Name)
		h = h*0x9e3779b97f4a7c15 ^ maphash.String(c.seed, l.Value)
	}
	return h
}

// find is the entry of s, or nil, and the hash to add one by.
func (c *cache) find(s *model.Series) (*entry, uint64) {
	if s.Key != 0 {
		if e := c.keyed[s.Key]; e != nil {
			return e, e.hash
		}
	}
	hash := c.hash(s)
	for e := c.entries[hash]; e != nil; e = e.next {
		if e.name == s.Name && slices.Equal(e.labels, s.Labels) {
			c.setKey(e, s.Key)
			return e, hash
		}
	}
	return nil, hash
}

// has reports whether there is an entry of s; it changes nothing.
func (c *cache) has(s *model.Series) bool {
	if s.Key != 0 && c.keyed[s.Key] != nil {
		return true
	}
	for e := c.entries[c.hash(s)]; e != nil; e = e.next {
		if e.name == s.Name && slices.Equal(e.labels, s.Labels) {
			return true
		}
	}
	return false
}

// storedLabels are the labels of s as they are stored, its name among them.
func (c *cache) storedLabels(s *model.Series) labels.Labels {
	c.builder.Reset()
	c.builder.Add(nameLabel, s.Name)
	for _, l := range s.Labels {
		if l.Value != "" {
			c.builder.Add(l.Name, l.Value)
		}
	}
	c.builder.Sort()
	return c.builder.Labels()
}

func (c *cache) add(s *model.Series, hash uint64) *entry {
	e := &entry{name: s.Name, labels: s.Labels, hash: hash, stored: c.storedLabels(s), kind: s.Kind}
	e.next = c.entries[hash]
	c.entries[hash] = e
	c.setKey(e, s.Key)
	return e
}

func (c *cache) setKey(e *entry, key uint64) {
	if e.key != 0 {
		delete(c.keyed, e.key)
	}
	if e.key = key; key != 0 {
		c.keyed[key] = e
	}
}

func (c *cache) remove(e *entry) {
	c.setKey(e, 0)
	e.following = nil
	first := c.entries[e.hash]
	if first == e {
		if e.next == nil {
			delete(c.entries, e.hash)
		} else {
			c.entries[e.hash] = e.next
		}
		return
	}
	for ; first != nil; first = first.next {
		if first.next == e {
			first.next = e.next
			return
		}
	}
}
