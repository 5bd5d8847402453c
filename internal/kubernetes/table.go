package kubernetes

import "slices"

// table holds the objects of one resource, at most max of them. Its methods but decode are called
// with the cluster's lock held for writing.
type table[T interface{ key() string }] struct {
	max    int
	decode func(text []byte) (T, metadata, error)
	// index and unindex keep what the cluster finds objects by. before is the object that is
	// replaced; replaced is true where another entry is set in its stead.
	index   func(object, before T)
	unindex func(object T, replaced bool)
	items   map[string]*item[T]
	// full counts objects that found no room.
	full uint64
}

type item[T any] struct {
	object T
	// list is the number of the list that named the object last.
	list uint64
}

// put adds an object or replaces it.
func (t *table[T]) put(object T, list uint64) {
	known := t.items[object.key()]
	var before T
	switch {
	case known != nil:
		before = known.object
		t.unindex(before, true)
		known.object, known.list = object, list
	case len(t.items) >= t.max:
		t.full++
		return
	default:
		t.items[object.key()] = &item[T]{object, list}
	}
	t.index(object, before)
}

func (t *table[T]) remove(key string) {
	if known := t.items[key]; known != nil {
		delete(t.items, key)
		t.unindex(known.object, false)
	}
}

// keep removes what a list, which is complete, did not name.
func (t *table[T]) keep(list uint64) {
	for key, known := range t.items {
		if known.list != list {
			t.remove(key)
		}
	}
}

// many is a map with several values for a key.
type many[K, V comparable] map[K][]V

func (m many[K, V]) add(key K, value V) {
	if !slices.Contains(m[key], value) {
		m[key] = append(m[key], value)
	}
}

func (m many[K, V]) remove(key K, value V) {
	at := slices.Index(m[key], value)
	switch {
	case at < 0:
	case len(m[key]) == 1:
		delete(m, key)
	default:
		m[key] = slices.Delete(m[key], at, at+1)
	}
}
