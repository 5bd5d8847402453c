package net

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// look looks at processes that are new, or may have loaded more since, and gives up binaries that no
// process has any more.
func (w *tlsWatcher) look() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.lookAtTables()
	w.lookAtProcesses()
}

func (w *tlsWatcher) lookAtProcesses() {
	entries, err := os.ReadDir(w.procfs)
	if err != nil {
		w.logger.Warn("looking for programs that use TLS failed", "error", err)
		return
	}
	alive, used := make(map[int]bool), make(map[binaryID]bool)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if w.stopped() {
			return
		}
		process := w.lookAt(pid)
		if process == nil {
			continue
		}
		alive[pid] = true
		for _, id := range process.binaries {
			used[id] = true
		}
	}
	w.giveUp(alive, used)
}

// giveUp forgets processes that have ended, and what none has any more.
func (w *tlsWatcher) giveUp(alive map[int]bool, used map[binaryID]bool) {
	shared := make(map[*tlsShare]bool)
	for pid, process := range w.processes {
		if !alive[pid] {
			delete(w.processes, pid)
			continue
		}
		shared[process.share] = true
	}
	err := w.forget(func(id binaryID, b *tlsBinary) bool {
		if b.unused++; used[id] {
			b.unused = 0
		}
		return b.unused >= 2
	})
	if err != nil {
		w.logger.Warn("taking a probe away failed", "error", err)
	}
	for name, share := range w.shares {
		// Whoever has used up his reading does not get it back by a restart.
		if !shared[share] && share.binaries == 0 && share.reading.Tokens() >= tlsReadingBurst {
			delete(w.shares, name)
		}
	}
}

// lookAtTables counts what was evicted. Calls begin and end, so they are counted; connections stay until then.
func (w *tlsWatcher) lookAtTables() {
	w.connections.lookAtFull()
	made, found := w.calls.made(), uint64(0)
	keys, values := make([]tlsTlsCallKey, 512), make([]tlsTlsCall, 512)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := w.callsMap.BatchLookup(&cursor, keys, values, nil)
		found += uint64(n)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			w.calls.look(made, found)
			return
		}
		if err != nil {
			w.logger.Warn("counting the calls of TLS libraries failed", "error", err)
			return
		}
	}
}

// lookAt is what is known of a process, nil for one without memory of its own.
func (w *tlsWatcher) lookAt(pid int) *tlsProcess {
	dir := filepath.Join(w.procfs, strconv.Itoa(pid))
	exe, err := os.Readlink(dir + "/exe")
	if err != nil {
		return nil
	}
	process := w.processes[pid]
	if process == nil || process.exe != exe {
		process = &tlsProcess{exe: exe}
		w.processes[pid] = process
	}
	// Libraries may be loaded late, but seldom are.
	if looks := process.looks + 1; looks&(looks-1) != 0 && looks%16 != 0 {
		process.looks++
		return process
	}
	if process.share = w.shareOf(dir); process.share == nil || process.share.refused {
		return process
	}
	if process.share.reading.Tokens() <= 0 {
		w.putOff.Add(1)
		return process
	}
	process.looks++
	w.lookInto(process, dir)
	return process
}

// shareOf is the share of a process's container, nil for a process that has ended.
func (w *tlsWatcher) shareOf(process string) *tlsShare {
	name, err := readContainer(process)
	if err != nil {
		return nil
	}
	share := w.shares[name]
	if share == nil {
		share = &tlsShare{reading: rate.NewLimiter(tlsReading, tlsReadingBurst)}
		w.shares[name] = share
	}
	return share
}

// read counts what was read of a container, which may be more than there was left.
func (s *tlsShare) read(bytes int64) {
	s.reading.ReserveN(time.Now(), int(min(bytes, tlsReadingBurst)))
}

// lookInto looks at what a process executes.
func (w *tlsWatcher) lookInto(process *tlsProcess, dir string) {
	maps, err := os.Open(dir + "/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	w.lines.Reset(maps)
	found, err := readMappings(w.lines)
	process.share.read(int64(found.bytes))
	if err != nil {
		return
	}
	if found.cut || w.slow(process, dir, found) {
		w.refuse(process, found)
		return
	}
	if found.crowded {
		w.noShare.Add(1)
	}
	// What it has no more, or has changed since, is not in use by it any more.
	process.binaries = nil
	w.lookIntoProgram(process, dir)
	for _, library := range found.openSSL {
		file, err := openMapped(dir, library)
		if err != nil {
			w.logger.Debug("a library was not opened", "library", library.path, "error", err)
			continue
		}
		w.consider(process, file, library.path, openSSLFunctions)
	}
}

// lookIntoProgram looks at the program of a process until it is settled, and again if its probes were taken away.
func (w *tlsWatcher) lookIntoProgram(process *tlsProcess, dir string) {
	opened := process.program != binaryID{}
	if process.settled && opened && w.binaries[process.program] == nil {
		process.settled = false
	}
	if process.settled {
		if opened {
			process.binaries = append(process.binaries, process.program)
		}
		return
	}
	file, err := openExecutable(dir)
	if err != nil {
		process.settled = true
		return
	}
	process.program = file.id
	process.settled = w.consider(process, file, process.exe, goFunctions)
}

// slow is whether taking probes away from a process's container would take long: the process often maps its
// program, a library that is to be probed, or a file that is probed on its container's share. Other files do not
// matter: .NET maps the code that it compiles many times. What another container has probed stays whoever maps it.
func (w *tlsWatcher) slow(process *tlsProcess, dir string, found mappings) bool {
	if len(found.often) == 0 {
		return false
	}
	inodes := make(map[uint64]bool)
	var program unix.Stat_t
	if err := unix.Stat(dir+"/exe", &program); err == nil {
		inodes[program.Ino] = true
	}
	for _, library := range found.openSSL {
		inodes[library.inode] = true
	}
	for id, b := range w.binaries {
		if b.owner == process.share {
			inodes[id.inode] = true
		}
	}
	return slices.ContainsFunc(found.often, func(m mapping) bool {
		return inodes[m.inode] || m.path == process.exe
	})
}

// refuse takes the probes away from the container of a process that maps too much. Another container that has the
// same files gets them on its own share when its processes are looked into next.
func (w *tlsWatcher) refuse(process *tlsProcess, found mappings) {
	process.share.refused = true
	w.noMap.Add(1)
	w.logger.Info("encrypted requests of a container are not read: one of its programs maps too much",
		"program", process.exe, "bytes", found.bytes, "mapped_often", len(found.often))
	err := w.forget(func(_ binaryID, b *tlsBinary) bool { return b.owner == process.share })
	if err != nil {
		w.logger.Warn("taking a probe away failed", "error", err)
	}
	// Its processes are not looked into again: they must not keep what others get.
	for _, p := range w.processes {
		if p.share == process.share {
			p.binaries = nil
		}
	}
}

// consider closes a binary of a process, after it is probed if it is not yet. It is false if there is something left
// to do.
func (w *tlsWatcher) consider(process *tlsProcess, file *binaryFile, name string, functions findFunctions) bool {
	defer file.Close()
	b := w.binaries[file.id]
	if b == nil {
		if process.share.reading.Tokens() <= 0 {
			w.putOff.Add(1)
			return false
		}
		b = &tlsBinary{}
		w.binaries[file.id] = b
		var err error
		if b.waiting, err = w.read(process.share, file, functions); err != nil {
			w.tellRefused(name, err)
		}
		if room := w.room(process.share, len(b.waiting)); room != nil {
			room.Add(1)
		}
	}
	if !slices.Contains(process.binaries, file.id) {
		process.binaries = append(process.binaries, file.id)
	}
	if len(b.waiting) == 0 {
		return true
	}
	if w.room(process.share, len(b.waiting)) != nil {
		return false
	}
	if err := w.probe(b, process.share, file); err != nil {
		w.tellRefused(name, err)
	}
	return true
}

func (w *tlsWatcher) tellRefused(name string, err error) {
	if errors.Is(err, errNoTLS) || errors.Is(err, errStopped) {
		return
	}
	w.refused.Add(1)
	w.logger.Info("encrypted requests of a program cannot be read", "binary", name, "error", err)
}

// room is what lacks room for so many probes at a binary more, nil for nothing.
func (w *tlsWatcher) room(share *tlsShare, probes int) *atomic.Uint64 {
	switch {
	case probes == 0:
		return nil
	case share.binaries >= maxContainerBinaries || share.probes+probes > w.uprobes.container:
		return &w.noShare
	case w.probed.Load() >= maxTLSBinaries:
		return &w.noBinary
	case w.probes.Load()+int64(probes) > int64(w.uprobes.most):
		return &w.noProbe
	}
	return nil
}
