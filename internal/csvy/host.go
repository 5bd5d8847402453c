package csvy

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Host that a file was recorded on. What is not known is empty or 0.
type Host struct {
	Name, System, Kernel string
	// Cores are those there are, OnlineCores those in use.
	Cores, OnlineCores int
	// MHz is the clock of the first CPU.
	MHz                    int
	MemoryBytes, SwapBytes uint64
	// Distribution is os-release: ID, ID_LIKE, NAME and so on.
	Distribution map[string]string
}

// ThisHost reads what is known about this host. What cannot be read stays empty.
func ThisHost() Host {
	h := Host{System: "Linux"}
	read := func(path string) []byte { b, _ := os.ReadFile(path); return b }
	line := func(path string) string { return string(bytes.TrimSpace(read(path))) }
	h.Name, _ = os.Hostname()
	h.Kernel = line("/proc/sys/kernel/osrelease")
	h.Cores = countCPUs(line("/sys/devices/system/cpu/present"))
	h.OnlineCores = countCPUs(line("/sys/devices/system/cpu/online"))
	meminfo := keyed(read("/proc/meminfo"), ":")
	h.MemoryBytes, h.SwapBytes = kibibytes(meminfo["MemTotal"]), kibibytes(meminfo["SwapTotal"])
	mhz, _ := strconv.ParseFloat(keyed(read("/proc/cpuinfo"), ":")["cpu MHz"], 64)
	h.MHz = int(mhz)
	h.Distribution = keyed(read("/etc/os-release"), "=")
	return h
}

// keyed reads lines of a key, a separator and a value. The first of equal keys counts.
func keyed(text []byte, separator string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, separator)
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"'`)
		if _, known := values[key]; ok && !known && !strings.HasPrefix(key, "#") {
			values[key] = value
		}
	}
	return values
}

func kibibytes(text string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(text, " kB"), 10, 64)
	return n << 10
}

// countCPUs counts a list as "0-3,8". It is 0 for what is none.
func countCPUs(list string) int {
	n := 0
	for part := range strings.SplitSeq(list, ",") {
		var first, last int
		switch got, _ := fmt.Sscanf(part, "%d-%d", &first, &last); got {
		case 1:
			n++
		case 2:
			n += last - first + 1
		}
	}
	return n
}
