package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"outsight/internal/model"
)

// searchInterval is the least time between two walks that Lookup starts.
const searchInterval = time.Second

// found is a group that a walk saw.
type found struct {
	id   model.CgroupID
	path string
}

// Resync walks the hierarchy and finds what no event reported: new groups, and groups that
// are gone. It fails where the root of the hierarchy cannot be read.
func (r *Registry) Resync() error {
	r.walking.Lock()
	defer r.walking.Unlock()
	return r.walk()
}

// walk must be called with walking held.
func (r *Registry) walk() error {
	r.mu.Lock()
	start, sought := r.changes, r.sought
	r.sought = make(map[model.CgroupID]struct{})
	r.mu.Unlock()
	groups, complete, err := walkGroups(r.layout.MountPoint, r.o.MaxGroups)
	if err != nil {
		return fmt.Errorf("walking the control groups: %w", err)
	}
	r.walked = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[model.CgroupID]struct{}, len(groups))
	for _, g := range groups {
		seen[g.id] = struct{}{}
		r.addWalked(g)
	}
	for id := range sought {
		r.addUnknown(id)
	}
	if !complete {
		r.drops.groups++
		return nil
	}
	// What was asked for and is not there was removed, and the events of its whole life were lost.
	for id, released := range r.unknown {
		if _, ok := seen[id]; !ok && !released {
			r.unknown[id] = true
			r.release(id)
		}
	}
	for id, g := range r.groups {
		// A group that became known after the walk began may have begun after its directory was read.
		if _, ok := seen[id]; !ok && g.change <= start && !g.removed {
			r.remove(id, r.walked)
		}
	}
	return nil
}

// addWalked makes a group known whose age is not: Started stays empty until the first process
// has given it. mu must be held.
func (r *Registry) addWalked(g found) {
	if r.groups[g.id] == nil {
		r.add(g.id, g.path, time.Time{})
	}
}

// addUnknown keeps an id that was sought and is not among the groups. mu must be held.
func (r *Registry) addUnknown(id model.CgroupID) {
	if r.groups[id] != nil {
		return
	}
	if len(r.unknown) >= unknownCapacity {
		// Those that were released are forgotten by the kernel as well, and not asked for again.
		maps.DeleteFunc(r.unknown, func(_ model.CgroupID, released bool) bool { return released })
	}
	if len(r.unknown) >= unknownCapacity {
		r.drops.unknown++
		return
	}
	r.unknown[id] = false
}

// search looks for an id that no event has announced, and reports whether it may be known now.
func (r *Registry) search(id model.CgroupID) bool {
	r.walking.Lock()
	defer r.walking.Unlock()
	if _, known := r.lookup(id); known {
		return true // found by the walk that was waited for
	}
	r.mu.Lock()
	if len(r.sought) < unknownCapacity {
		r.sought[id] = struct{}{}
	} else {
		r.drops.unknown++
	}
	r.mu.Unlock()
	if time.Since(r.walked) < searchInterval {
		return false
	}
	if err := r.walk(); err != nil {
		r.o.Logger.Warn("control group not found", "id", id, "error", err)
		return false
	}
	return true
}

// walkGroups lists the groups below root, which is the first of them. Groups that vanish
// meanwhile are left out. complete is false where there are more than limit.
func walkGroups(root string, limit int) (groups []found, complete bool, err error) {
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			if name != root && gone(err) {
				return nil
			}
			return err
		}
		if !entry.IsDir() {
			return nil
		}
		stat, err := statDirectory(name)
		if err != nil {
			return fs.SkipDir
		}
		if len(groups) >= limit {
			return fs.SkipAll
		}
		path := name[len(root):]
		if path == "" {
			path = "/"
		}
		groups = append(groups, found{id: model.CgroupID(stat.Ino), path: path})
		// A directory without directories has two links. Most groups are such, and reading
		// the names of their forty files is what a walk would cost.
		if stat.Nlink == 2 && name != root {
			return fs.SkipDir
		}
		return nil
	})
	return groups, len(groups) < limit, err
}

func statDirectory(name string) (syscall.Stat_t, error) {
	var stat syscall.Stat_t
	err := syscall.Lstat(name, &stat)
	return stat, err
}

// inode is the id of the group at path, 0 where it is gone.
func (r *Registry) inode(path string) model.CgroupID {
	stat, err := statDirectory(r.layout.MountPoint + path)
	if err != nil {
		return 0
	}
	return model.CgroupID(stat.Ino)
}

func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ESRCH)
}

func (r *Registry) runResync(ctx context.Context) {
	tick := time.NewTicker(r.o.Resync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := r.Resync(); err != nil {
			r.o.Logger.Warn("containers may be missing", "error", err)
		}
		r.describeAgain()
	}
}
