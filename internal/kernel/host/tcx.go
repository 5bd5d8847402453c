package host

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// HaveTCX tells why programs cannot be attached to network interfaces by tcx; nil where they can.
func HaveTCX() error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return fmt.Errorf("loading an empty program: %w", err)
	}
	defer program.Close()
	// There is no such interface: another error than ErrNotSupported is from looking for it.
	l, err := link.AttachTCX(link.TCXOptions{Interface: math.MaxInt32, Program: program, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		return l.Close()
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return nil
}
