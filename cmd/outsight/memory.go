package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/agent"
)

// limitMemory makes the collector of unused memory work harder near a limit, unless the user has set one: at what is
// needed, or where the machine has less than that, at three quarters of what it has. It answers the limit.
func limitMemory(need int64) int64 {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(min(need, machineMemory("/proc/meminfo", "/sys/fs/cgroup")/4*3))
	}
	return debug.SetMemoryLimit(-1)
}

// serverGC is how much memory in per cent of what is in use a server fills before it collects what is not. Between two
// frames of a host nearly all that was allocated for the first is garbage: the default of 100 doubles what is resident.
// From 50 to 30 a server with 100,000 edges has a sixth less resident, and a frame takes a quarter more CPU time.
const serverGC = 30

// collectOften makes the collector run more often than by default, unless the user has set how often.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(serverGC)
	}
}

// machineMemory is how many bytes this process may have: those of the machine, or of its control group where that has
// fewer. It is as many as there can be where nobody says.
func machineMemory(meminfo, cgroups string) int64 {
	least := int64(math.MaxInt64)
	text, _ := os.ReadFile(meminfo)
	if bytes, err := agent.ParseMeminfo(text); err == nil && bytes > 0 {
		least = int64(bytes)
	}
	// A container sees its own control group as the root of the hierarchy; of others, the service manager's settings are
	// theirs.
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		text, _ := os.ReadFile(filepath.Join(cgroups, name))
		if bytes, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bytes > 0 {
			least = min(least, bytes)
		}
	}
	return least
}

// The store maps its files: what was read of them stays resident, more with each compaction and each query of a long
// window, until the host is short of memory. Where that is over mappedLimit it is released, mappedEvery at most.
const (
	mappedLimit = 48 << 20
	mappedEvery = time.Minute
)

// keepMappedSmall lets pages of mapped files below dir go until ctx ends.
func keepMappedSmall(ctx context.Context, dir string, log *slog.Logger) {
	ticker := time.NewTicker(mappedEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := letMappedGo(dir, mappedLimit); err != nil {
			log.Debug("pages of the store's files stay resident", "error", err)
		}
	}
}

// mapping is a range of this process's memory, of which some bytes are resident.
type mapping struct {
	begin, end uintptr
	resident   uint64
}

// letMappedGo lets the pages of all mapped files below dir go if more than limit bytes of them are resident. A range
// may be another mapping's by now: so it asks for pages to be written out, which loses nothing whatever they hold.
func letMappedGo(dir string, limit uint64) error {
	all, err := mappingsBelow(dir)
	if err != nil {
		return err
	}
	resident := uint64(0)
	for _, m := range all {
		resident += m.resident
	}
	if resident <= limit {
		return nil
	}
	var errs []error
	for _, m := range all {
		if m.resident == 0 {
			continue
		}
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_PAGEOUT)
		if errno != 0 && errno != unix.ENOMEM { // it is mapped no longer
			errs = append(errs, fmt.Errorf("letting %x-%x go: %w", m.begin, m.end, errno))
		}
	}
	return errors.Join(errs...)
}

// mappingsBelow are the ranges that show files below dir, read-only.
func mappingsBelow(dir string) ([]mapping, error) {
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, fmt.Errorf("reading the memory map: %w", err)
	}
	defer file.Close()
	prefix := strings.TrimSuffix(dir, "/") + "/"
	var all []mapping
	ours := false
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) >= 5 && !strings.HasSuffix(words[0], ":"): // begin-end mode offset device inode path
			// The path may have spaces.
			path := strings.Index(lines.Text(), "/")
			ours = path > 0 && words[1][1] != 'w' && strings.HasPrefix(lines.Text()[path:], prefix)
			if !ours {
				continue
			}
			var m mapping
			if _, err := fmt.Sscanf(words[0], "%x-%x", &m.begin, &m.end); err != nil {
				return nil, fmt.Errorf("reading the memory map's %q: %w", lines.Text(), err)
			}
			all = append(all, m)
		case ours && words[0] == "Rss:" && len(words) == 3:
			kib, err := strconv.ParseUint(words[1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("reading the memory map's %q: %w", lines.Text(), err)
			}
			all[len(all)-1].resident = kib << 10
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the memory map: %w", err)
	}
	return all, nil
}
