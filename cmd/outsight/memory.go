package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

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
