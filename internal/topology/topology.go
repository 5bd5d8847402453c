// Package topology reports which of a host's CPUs are hardware threads of one core, which cores are in
// one package (socket), and which CPUs are on line, from sysfs.
package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MaxCPUs bounds the CPUs that a machine may have here; the kernel's own bound is 8192.
const MaxCPUs = 8192

// CPU is one hardware thread.
type CPU struct {
	Online bool
	// Core is an index that all threads of a core share, Package an index of Machine.Packages. Both
	// are -1 until the CPU has been on line, for the kernel has them of such CPUs alone.
	Core, Package int
}

// Machine is what is known of a host's CPUs. What was known of a CPU stays when it goes off line.
type Machine struct {
	// CPUs by number.
	CPUs []CPU
	// Packages are the kernel's ids of the packages, in the order in which they were found.
	Packages []int

	root   string
	list   *os.File // of the CPUs on line, open from the first look on
	buffer []byte
	online string
	cores  map[coreKey]int
}

type coreKey struct{ packageID, die, core int }

// New makes a machine of at most cpus CPUs from sysfs at root (default /sys). Refresh reads it.
func New(root string, cpus int) *Machine {
	m := &Machine{root: filepath.Join(cmp.Or(root, "/sys"), "devices/system/cpu"), cores: map[coreKey]int{}}
	m.CPUs = make([]CPU, min(cpus, MaxCPUs))
	for i := range m.CPUs {
		m.CPUs[i] = CPU{Core: -1, Package: -1}
	}
	return m
}

// Refresh looks which CPUs are on line, and at what is not known yet of those. It reports whether
// anything changed. CPUs whose topology cannot be read are cores of package 0 by themselves, and in the error.
func (m *Machine) Refresh() (bool, error) {
	text, err := m.readOnline()
	if err != nil {
		return false, fmt.Errorf("reading which CPUs are on line: %w", err)
	}
	if string(text) == m.online {
		return false, nil
	}
	online, err := ParseList(string(text))
	if err != nil {
		return false, fmt.Errorf("reading which CPUs are on line: %w", err)
	}
	m.online = string(text)
	for i := range m.CPUs {
		m.CPUs[i].Online = false
	}
	var errs []error
	for _, cpu := range online {
		if cpu >= len(m.CPUs) {
			errs = append(errs, fmt.Errorf("CPU %d is on line, want less than %d", cpu, len(m.CPUs)))
			continue
		}
		m.CPUs[cpu].Online = true
		if m.CPUs[cpu].Core < 0 {
			errs = append(errs, m.locate(cpu))
		}
	}
	return true, errors.Join(errs...)
}

// Close closes the list of CPUs on line.
func (m *Machine) Close() error {
	if m.list == nil {
		return nil
	}
	return m.list.Close()
}

// readOnline reads the list of CPUs on line, into memory that is used again.
func (m *Machine) readOnline() ([]byte, error) {
	if m.list == nil {
		f, err := os.Open(filepath.Join(m.root, "online"))
		if err != nil {
			return nil, err
		}
		m.list, m.buffer = f, make([]byte, os.Getpagesize()) // the kernel writes no more
	}
	n, err := m.list.ReadAt(m.buffer, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return m.buffer[:n], err
}

// locate finds a CPU's core and package.
func (m *Machine) locate(cpu int) error {
	key := coreKey{}
	var errs []error
	for _, f := range []struct {
		name string
		to   *int
	}{{"physical_package_id", &key.packageID}, {"die_id", &key.die}, {"core_id", &key.core}} {
		n, err := m.readID(cpu, f.name)
		if errors.Is(err, fs.ErrNotExist) && f.name == "die_id" { // since 5.2
			err = nil
		}
		*f.to, errs = n, append(errs, err)
	}
	err := errors.Join(errs...)
	if err != nil {
		// Alone, rather than the sibling of somebody else by chance.
		key = coreKey{die: -2, core: cpu}
	}
	if key.packageID < 0 { // some virtual machines have none
		key.packageID = 0
	}
	if _, known := m.cores[key]; !known {
		m.cores[key] = len(m.cores)
	}
	if !slices.Contains(m.Packages, key.packageID) {
		m.Packages = append(m.Packages, key.packageID)
	}
	m.CPUs[cpu].Core, m.CPUs[cpu].Package = m.cores[key], slices.Index(m.Packages, key.packageID)
	return err
}

func (m *Machine) readID(cpu int, name string) (int, error) {
	path := filepath.Join(m.root, "cpu"+strconv.Itoa(cpu), "topology", name)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the topology of CPU %d: %w", cpu, err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("reading %s: got %q, want a number", path, text)
	}
	return int(n), nil
}

// SharedCores reports whether some core has more than one thread that is, or was, on line.
func (m *Machine) SharedCores() bool {
	known := 0
	for _, c := range m.CPUs {
		if c.Core >= 0 {
			known++
		}
	}
	return len(m.cores) < known
}

// ParseList parses a list of CPUs as the kernel writes it, "0-3,8", of at most MaxCPUs. An empty list
// is none.
func ParseList(text string) ([]int, error) {
	var all []int
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 32)
		last, lastErr := strconv.ParseUint(high, 10, 32)
		if err != nil || lastErr != nil || last < first || last >= MaxCPUs {
			return nil, fmt.Errorf("got %q in a list of CPUs, want numbers and ranges below %d", part, MaxCPUs)
		}
		for cpu := first; cpu <= last; cpu++ {
			all = append(all, int(cpu))
		}
		if len(all) > MaxCPUs {
			return nil, fmt.Errorf("got over %d CPUs in a list", MaxCPUs)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
