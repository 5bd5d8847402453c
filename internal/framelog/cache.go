package framelog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

const (
	// partBytes is how much is read of an object at least, partsAtOnce how many of those at most.
	partBytes   = 1 << 20
	partsAtOnce = 8
)

var errNotCached = errors.New("it is not in the cache")

// diskCache keeps parts of segments that are in the bucket. It begins empty.
type diskCache struct {
	dir      string
	maxBytes int64

	// mu guards the rest, and the files.
	mu    sync.Mutex
	parts map[partID]*part
	bytes int64
	clock uint64
}

type partID struct {
	segment uint64
	part    int64
}

type part struct {
	bytes int64
	used  uint64
}

func newDiskCache(dir string, maxBytes int64) (*diskCache, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("emptying the cache of frames: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the cache of frames: %w", err)
	}
	return &diskCache{dir: dir, maxBytes: maxBytes, parts: map[partID]*part{}}, nil
}

func (c *diskCache) path(id partID) string {
	return filepath.Join(c.dir, fmt.Sprintf("%012d-%06d", id.segment, id.part))
}

func (c *diskCache) has(id partID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[id] != nil
}

// get reads a part; an error means that it is not there.
func (c *diskCache) get(id partID) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.parts[id]
	if p == nil {
		return nil, errNotCached
	}
	b, err := os.ReadFile(c.path(id))
	if err != nil || int64(len(b)) != p.bytes {
		c.remove(id)
		return nil, errNotCached
	}
	c.clock++
	p.used = c.clock
	return b, nil
}

// put keeps a part, and removes those that were used longest ago. A disk that is full costs the cache alone.
func (c *diskCache) put(id partID, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts[id] != nil || int64(len(b)) > c.maxBytes {
		return
	}
	for c.bytes+int64(len(b)) > c.maxBytes {
		c.removeOldest()
	}
	if err := os.WriteFile(c.path(id), b, 0o600); err != nil {
		os.Remove(c.path(id))
		return
	}
	c.clock++
	c.parts[id] = &part{int64(len(b)), c.clock}
	c.bytes += int64(len(b))
}

func (c *diskCache) removeOldest() {
	oldest, least := partID{}, c.clock+1
	for id, p := range c.parts {
		if p.used < least {
			oldest, least = id, p.used
		}
	}
	c.remove(oldest)
}

func (c *diskCache) remove(id partID) {
	c.bytes -= c.parts[id].bytes
	delete(c.parts, id)
	os.Remove(c.path(id))
}
