package kernels

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"outsight/test/kernels/report"
)

// guestLimit ends a guest that hangs. It needs an eighth of this where nothing else runs.
const guestLimit = 20 * time.Minute

// commandLine of the guest's kernel: it prints warnings on the first serial port, does not check its
// clocks, which would take long, and ends when it fails. How fast its clock ticks is told by clockRate.
const commandLine = "console=ttyS0 loglevel=5 softlockup_all_cpu_backtrace=1 panic=-1 tsc=reliable no_timer_check mitigations=off"

// run boots a kernel without hardware virtualization, which not every host has, and waits for the guest's report,
// which comes by that file. Devices are arguments of QEMU, for a network; none without one. The settings become the
// environment of its first process; what it prints goes to console.
//
// One host thread plays both CPUs: with two, QEMU 7.2 now and then runs code that the guest's other
// CPU has just changed, which is what attaching programs does, and the guest stops with an int3.
func run(kernel, archive, file string, settings []string, console io.Writer, devices ...string) (report.Report, error) {
	var r report.Report
	ctx, cancel := context.WithTimeout(context.Background(), guestLimit)
	defer cancel()
	if len(devices) == 0 {
		devices = []string{"-nic", "none"}
	}
	rate, err := clockRate()
	if err != nil {
		return r, err
	}
	machine := exec.CommandContext(ctx, "qemu-system-x86_64", append(devices,
		"-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "1G",
		"-kernel", kernel, "-initrd", archive,
		"-append", strings.Join(append(settings, commandLine, rate), " "),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "stdio", "-serial", "file:"+file)...)
	machine.Stdout, machine.Stderr = console, console
	// A test that is killed must not leave a guest that computes. The kernel sends the signal when the thread ends that
	// started the guest, so this goroutine stays on it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	machine.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := machine.Run(); err != nil {
		if ctx.Err() != nil {
			return r, fmt.Errorf("the guest was not done within %v", guestLimit)
		}
		return r, fmt.Errorf("running the guest: %w", err)
	}
	encoded, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(encoded, &r); err != nil {
		return r, fmt.Errorf("reading the guest's report %q: %w", encoded, err)
	}
	return r, nil
}

// clockRate is the parameter that tells a guest's kernel how fast its time-stamp counter, which is the host's, ticks. On a
// busy host, what a kernel measures itself at its start may be a twentieth of that, and its clock twenty times too fast.
var clockRate = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "outsight-clock")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "clock")
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/clock.c").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building clock.c: %w: %s (scripts/install kernels brings what it needs)", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		return "", fmt.Errorf("running clock.c: %w", err)
	}
	return "tsc_early_khz=" + strings.TrimSpace(string(out)), nil
})
