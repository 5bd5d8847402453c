package kernel

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// hook is a program and what is lost without it.
type hook struct {
	// program is its name in the object, name as users see it.
	program, name, purpose string
	required               bool
	// remedy is what it would take where the kernel refuses it.
	remedy string
}

// newMaps makes the object's maps without any of its programs; those in shared are used as they are.
func newMaps(spec *ebpf.CollectionSpec, shared map[string]*ebpf.Map) (*ebpf.Collection, error) {
	bare := spec.Copy()
	bare.Programs = nil
	return ebpf.NewCollectionWithOptions(bare, ebpf.CollectionOptions{MapReplacements: shared})
}

// load loads one program onto existing maps, and keeps it until the probes are closed.
func (p *Probes) load(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h hook) (*ebpf.Program, error) {
	program, err := loadProgram(k, spec, maps, h.program)
	if err != nil {
		return nil, err
	}
	p.onClose(program)
	p.programs = append(p.programs, loadedProgram{name: h.name, part: p.loading, program: program})
	return program, nil
}

// loadProgram loads one program onto existing maps.
func loadProgram(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, name string) (*ebpf.Program, error) {
	one := spec.Copy()
	one.Programs = map[string]*ebpf.ProgramSpec{name: one.Programs[name]}
	if one.Programs[name] == nil {
		return nil, fmt.Errorf("BUG: no program %q in the object", name)
	}
	loaded, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{
		MapReplacements: maps.Maps, Cache: k.types,
	})
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	return loaded.DetachProgram(name), nil
}

// attach loads and attaches a tp_btf program; an error is a feature that is absent.
func (p *Probes) attach(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h hook) error {
	err := p.tryAttach(k, spec, maps, h)
	p.addFeature(h, err)
	return err
}

// openIterator loads an iterator, over the elements of a map if there is one.
func (p *Probes) openIterator(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h hook, over *ebpf.Map) (*link.Iter, error) {
	program, err := p.load(k, spec, maps, h)
	if err != nil {
		return nil, err
	}
	iter, err := link.AttachIter(link.IterOptions{Program: program, Map: over})
	if err != nil {
		return nil, err
	}
	p.onClose(iter)
	return iter, nil
}

// run reads an iterator to its end; its programs write nothing.
func run(iter *link.Iter) error {
	reader, err := iter.Open()
	if err != nil {
		return err
	}
	defer reader.Close()
	_, err = io.Copy(io.Discard, reader)
	return err
}

func (p *Probes) addFeature(h hook, err error) {
	f := model.Feature{Name: h.name, Purpose: h.purpose, Required: h.required, State: model.FeatureWorks}
	if err != nil {
		f.State, f.Reason, f.Remedy = model.FeatureAbsent, refusal(err), h.remedy
		// What the main job does without is told by doctor and on the page.
		level := slog.LevelDebug
		if h.required {
			level = slog.LevelWarn
		}
		p.options.Logger.Log(context.Background(), level, "kernel program refused", "hook", h.name, "error", f.Reason)
	}
	p.features = append(p.features, f)
}

// refusal is the short reason of a load error; the verifier's full log is of no use to users.
func refusal(err error) string {
	var (
		hook     *hookError
		verifier *ebpf.VerifierError
	)
	switch {
	case errors.As(err, &hook):
		return err.Error()
	case errors.As(err, &verifier):
		return fmt.Sprintf("%v", verifier)
	case errors.Is(err, unix.EPERM):
		return "operation not permitted: CAP_BPF and CAP_PERFMON (or root) are needed"
	}
	return err.Error()
}

// hierarchyID reads the id of a v1 controller's hierarchy from /proc/self/cgroup.
func hierarchyID(procfs, controller string) (uint32, error) {
	path := filepath.Join(procfs, "self", "cgroup")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("looking up the %s hierarchy: %w", controller, err)
	}
	id, err := findHierarchy(string(text), controller)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", path, err)
	}
	return id, nil
}

// findHierarchy finds the id in lines like "7:cpu,cpuacct:/docker/4f1d".
func findHierarchy(text, controller string) (uint32, error) {
	for line := range strings.Lines(text) {
		id, rest, _ := strings.Cut(line, ":")
		controllers, _, _ := strings.Cut(rest, ":")
		for c := range strings.SplitSeq(controllers, ",") {
			if c != controller {
				continue
			}
			n, err := strconv.ParseUint(id, 10, 32)
			if err != nil {
				return 0, fmt.Errorf("hierarchy of %s: %w", controller, err)
			}
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("no hierarchy of controller %q", controller)
}

// jiffyNS is the length of a jiffy by the kernel's configuration; 4 ms (250 Hz, as most
// distributions have it) where that cannot be read.
func jiffyNS(procfs string) uint64 {
	const usual = 4_000_000
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return usual
	}
	for _, path := range []string{filepath.Join(procfs, "config.gz"), "/boot/config-" + unix.ByteSliceToString(name.Release[:])} {
		if hz, err := configuredHZ(path); err == nil && hz > 0 {
			return 1_000_000_000 / hz
		}
	}
	return usual
}

func configuredHZ(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var config io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if config, err = gzip.NewReader(f); err != nil {
			return 0, err
		}
	}
	for lines := bufio.NewScanner(config); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "CONFIG_HZ="); found {
			return strconv.ParseUint(value, 10, 32)
		}
	}
	return 0, fmt.Errorf("%s does not say CONFIG_HZ", path)
}

// monotonicNS is the clock of the kernel programs (bpf_ktime_get_ns).
func monotonicNS() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("BUG: no monotonic clock: " + err.Error())
	}
	return uint64(t.Nano())
}
