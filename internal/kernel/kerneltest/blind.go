package kerneltest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// Faults are what is wrong with one attempt at an exact count.
type Faults struct{ texts []string }

// Errorf adds a fault.
func (f *Faults) Errorf(format string, arguments ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, arguments...))
}

// CountExactly makes an attempt, and fails with its faults. Kernels of some sandboxes run no tracing program while a thread
// of process 1 is the current one, also not in the interrupts that come meanwhile: what is done then is counted by nobody.
// There, and nowhere else, it makes up to five attempts, of which one must have no faults.
func CountExactly(t *testing.T, attempt func(f *Faults, number int)) {
	t.Helper()
	attempts := 1
	if isBlindInProcess1(t) {
		attempts = 5
	}
	for number := range attempts {
		var f Faults
		attempt(&f, number)
		if len(f.texts) == 0 {
			return
		}
		for _, text := range f.texts {
			if number < attempts-1 {
				t.Log(text)
			} else {
				t.Error(text)
			}
		}
	}
}

// isBlindInProcess1 tells whether the kernel has such a patch, which is a field of programs' types.
func isBlindInProcess1(t *testing.T) bool {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var program *btf.Struct
	if err := kernel.TypeByName("bpf_prog_aux", &program); err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(program.Members, func(m btf.Member) bool { return m.Name == "init_owned" })
}
