package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"outsight/internal/model"
)

// ReadHost finds what a snapshot says about the host, from procfs at procRoot (default /proc).
// What cannot be read stays empty and is in the error.
func ReadHost(procRoot, cgroupLayout string) (model.Host, error) {
	procRoot = cmp.Or(procRoot, "/proc")
	h := model.Host{CgroupLayout: cgroupLayout}
	var err error
	if h.Name, err = os.Hostname(); err != nil {
		return h, fmt.Errorf("reading the host's name: %w", err)
	}
	kernel, err := os.ReadFile(procRoot + "/sys/kernel/osrelease")
	if err != nil {
		return h, fmt.Errorf("reading the kernel's version: %w", err)
	}
	h.Kernel = strings.TrimSpace(string(kernel))
	stat, err := os.ReadFile(procRoot + "/stat")
	if err != nil {
		return h, fmt.Errorf("reading the CPUs: %w", err)
	}
	if h.Cores, h.BootTime, err = parseStat(stat); err != nil {
		return h, fmt.Errorf("reading the CPUs: %w", err)
	}
	// Without one the boot time distinguishes boots, which moves where the clock is set.
	if id, err := os.ReadFile(procRoot + "/sys/kernel/random/boot_id"); err == nil {
		h.BootID = strings.TrimSpace(string(id))
	}
	memory, err := os.ReadFile(procRoot + "/meminfo")
	if err != nil {
		return h, fmt.Errorf("reading the memory's size: %w", err)
	}
	if h.MemoryBytes, err = ParseMeminfo(memory); err != nil {
		return h, fmt.Errorf("reading the memory's size: %w", err)
	}
	return h, nil
}

// parseStat reads the number of CPUs that are on line, and the boot time.
func parseStat(b []byte) (cores int, boot time.Time, err error) {
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, len(b)+1) // the line of interrupts is long on large machines
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if number, ok := strings.CutPrefix(name, "cpu"); ok && number != "" {
			cores++
		}
		if name == "btime" {
			seconds, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, time.Time{}, fmt.Errorf("boot time: %w", err)
			}
			boot = time.Unix(seconds, 0)
		}
	}
	if cores == 0 || boot.IsZero() {
		return 0, time.Time{}, fmt.Errorf("got %d CPUs and boot time %v, want both", cores, boot)
	}
	return cores, boot, lines.Err()
}

// readSteal is the time in ns for which a hypervisor kept the CPUs from running, summed over all CPUs.
func (p *procFiles) readSteal(procRoot string) (uint64, error) {
	b, err := p.stat.read(procRoot + "/stat")
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time taken by the hypervisor: %w", err)
	}
	return parseSteal(b)
}

// parseSteal reads the eighth number of the first line of /proc/stat, in ticks of a hundredth of a second.
func parseSteal(b []byte) (uint64, error) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("reading the CPU time taken by the hypervisor: got %q, want the sums of all CPUs", line)
	}
	ticks, err := strconv.ParseUint(fields[8], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time taken by the hypervisor: %w", err)
	}
	return ticks * uint64(time.Second/100), nil
}

// ParseMeminfo reads the size of the memory in bytes from the text of /proc/meminfo.
func ParseMeminfo(b []byte) (uint64, error) { return memoryLine(b, "MemTotal") }

// memoryLine is the number of one line of /proc/meminfo, in bytes.
func memoryLine(b []byte, name string) (uint64, error) {
	for line := range strings.Lines(string(b)) {
		value, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 54)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		return kib * 1024, nil
	}
	return 0, fmt.Errorf("no %s", name)
}

// readAvailable is how much memory programs could get without swapping.
func (p *procFiles) readAvailable(procRoot string) (uint64, error) {
	b, err := p.meminfo.read(procRoot + "/meminfo")
	if err != nil {
		return 0, fmt.Errorf("reading the memory available: %w", err)
	}
	return memoryLine(b, "MemAvailable")
}

// readThreads is the number of threads on the host.
func (p *procFiles) readThreads(procRoot string) (uint64, error) {
	b, err := p.loadavg.read(procRoot + "/loadavg")
	if err != nil {
		return 0, fmt.Errorf("reading the number of threads: %w", err)
	}
	return parseLoadavg(b)
}

// parseLoadavg reads the number of threads, which is behind the slash: "0.52 0.58 0.59 1/467 12345".
func parseLoadavg(b []byte) (uint64, error) {
	_, after, ok := bytes.Cut(b, []byte("/"))
	number, _, _ := bytes.Cut(after, []byte(" "))
	n, err := strconv.ParseUint(string(number), 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("reading the number of threads: got %q, want it behind a slash", b)
	}
	return n, nil
}
