package demo

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/bridge"
)

// bareStage runs the parts without a container runtime: each in control groups, and in network,
// process, IPC and host name namespaces of its own, on this host's file system.
type bareStage struct {
	options Options
	groups  cgroups
	network *bridge.Bridge
	dir     string // temporary files, one directory per part
	run     string // part of every container id of this run
	spawn   chan func()
	procs   map[*part]*bareProcess // complete before the first start
}

// bareProcess is the first process of a part.
type bareProcess struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func openBare(o Options) (*bareStage, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("making namespaces and control groups: root is needed (CAP_SYS_ADMIN, CAP_NET_ADMIN), or a " +
			"Docker daemon that answers")
	}
	h, err := readHierarchies(o.ProcFS)
	if err != nil {
		return nil, err
	}
	b := &bareStage{options: o, groups: cgroups{h, o.scope()}, run: rand.Text(), spawn: make(chan func())}
	go b.spawner()
	return b, nil
}

// spawner starts all processes from one thread that lives as long as the stage: they are to die
// with the launcher, and the kernel takes the thread that started them for it.
func (b *bareStage) spawner() {
	runtime.LockOSThread()
	for f := range b.spawn {
		f()
	}
}

func (b *bareStage) mode() string        { return "cgroup" }
func (b *bareStage) host(p *part) string { return p.Address.String() }

func (b *bareStage) clean(ctx context.Context) error { return cleanBare(ctx, b.options, b.groups) }

// cleanBare ends processes of an earlier run and removes its groups and files. Its namespaces
// ended with the processes, and so did its network.
func cleanBare(ctx context.Context, o Options, groups cgroups) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	errs := []error{groups.remove(ctx)}
	old, err := filepath.Glob(filepath.Join(os.TempDir(), o.scope()+".*"))
	errs = append(errs, err)
	for _, dir := range old {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

func (b *bareStage) prepare(_ context.Context, parts []*part) error {
	var err error
	if b.dir, err = os.MkdirTemp("", b.options.scope()+".*"); err != nil {
		return err
	}
	// nginx's workers, which are nobody, pass through it.
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return err
	}
	if b.network, err = bridge.New(); err != nil {
		return err
	}
	b.procs = map[*part]*bareProcess{}
	for i, p := range parts {
		p.Address = bareAddress(i)
		p.ID = b.id(p.Name)
		p.Image = filepath.Base(p.program)
		if p.ours() {
			p.Image = "shop"
		}
		b.procs[p] = &bareProcess{ended: make(chan struct{})}
		if err := b.groups.make(p.ID); err != nil {
			return err
		}
	}
	return nil
}

// bareAddress is the address of the i-th part; the network is nobody else's, so it is always the same.
func bareAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 209, 0, byte(2 + i)}) }

// id has the form of a runtime's container id, and like it is never used twice.
func (b *bareStage) id(name string) string {
	sum := sha256.Sum256([]byte(name + " " + b.run))
	return hex.EncodeToString(sum[:])
}

func (b *bareStage) start(_ context.Context, p *part, at func(string) string) (io.ReadCloser, error) {
	dir := filepath.Join(b.dir, p.Role)
	here := site{at: at, scratch: filepath.Join(dir, "tmp"), config: filepath.Join(dir, "config"),
		control: filepath.Join(dir, controlName)}
	if err := os.MkdirAll(here.scratch, 0o755); err != nil {
		return nil, err
	}
	if p.config != nil {
		if err := os.WriteFile(here.config, []byte(p.config(here)), 0o644); err != nil {
			return nil, err
		}
	}
	gate, output, err := b.launch(p, p.args(here))
	if err != nil {
		return nil, err
	}
	defer gate.Close() // without the byte, the process ends
	pid := b.procs[p].cmd.Process.Pid
	if err = b.groups.join(p.ID, pid); err == nil {
		err = b.network.Connect(pid, p.Address)
	}
	if err == nil {
		_, err = gate.Write([]byte{1})
	}
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOENT) {
		err = fmt.Errorf("it ended before it served: %w", err)
	}
	if err != nil {
		output.Close()
		return nil, err
	}
	return output, nil
}

// launch starts a part's first process, which waits at the gate.
func (b *bareStage) launch(p *part, args []string) (gate, output *os.File, err error) {
	wait, gate, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer wait.Close()
	output, out, err := os.Pipe()
	if err != nil {
		gate.Close()
		return nil, nil, err
	}
	defer out.Close()
	proc := b.procs[p]
	proc.cmd = exec.Command(b.options.Binary, append([]string{"demo-service", enterRole, p.Name, p.program}, args...)...)
	proc.cmd.Stdout, proc.cmd.Stderr, proc.cmd.ExtraFiles = out, out, []*os.File{wait}
	proc.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Setsid:     true, // Ctrl-C is for the launcher, which ends the parts in order
		Pdeathsig:  syscall.SIGKILL,
	}
	started := make(chan error)
	b.spawn <- func() { started <- proc.cmd.Start() }
	if err := <-started; err != nil {
		gate.Close()
		output.Close()
		return nil, nil, fmt.Errorf("starting a process in namespaces of its own: %w", err)
	}
	go func() {
		proc.cmd.Wait() // how it ended does not matter: its output says why
		close(proc.ended)
	}()
	return gate, output, nil
}

func (b *bareStage) send(_ context.Context, p *part, control []byte) error {
	file := filepath.Join(b.dir, p.Role, controlName)
	if err := os.WriteFile(file+".new", control, 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	return b.procs[p].cmd.Process.Signal(syscall.SIGHUP)
}

func (b *bareStage) stop(ctx context.Context, p *part) error {
	proc := b.procs[p]
	if err := proc.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	select {
	case <-proc.ended:
		return nil
	case <-time.After(graceSeconds * time.Second):
	case <-ctx.Done():
	}
	if err := proc.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	<-proc.ended
	return nil
}

func (b *bareStage) close(ctx context.Context) error {
	errs := []error{b.clean(ctx)}
	for _, proc := range b.procs {
		if proc.cmd != nil && proc.cmd.Process != nil {
			<-proc.ended // clean has killed it
		}
	}
	if b.network != nil {
		errs = append(errs, b.network.Close())
	}
	close(b.spawn)
	return errors.Join(errs...)
}

const (
	enterRole = "enter"
	// enterFD is the descriptor on which the launcher says that all is set up.
	enterFD = 3
)

// enter waits until the launcher has put this process into its control groups and given its
// network namespace an address, and then becomes the program in args, after its host name. So
// a part's first socket is made where it belongs, as in a container.
func enter(args []string) error {
	if len(args) < 2 {
		return errors.New("demo service enter: host name and program expected")
	}
	// The signal of a launcher's death is a property of a thread, and an exec keeps that of the
	// thread that calls it, which need not be the one that the launcher has set it for.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("demo service enter: asking for a signal when the launcher ends: %w", err)
	}
	gate := os.NewFile(enterFD, "gate")
	if _, err := gate.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("demo service enter: the launcher has gone: %w", err)
	}
	gate.Close()
	if err := syscall.Sethostname([]byte(args[0])); err != nil {
		return fmt.Errorf("demo service enter: setting the host name: %w", err)
	}
	err := syscall.Exec(args[1], args[1:], os.Environ())
	return fmt.Errorf("demo service enter: running %q: %w", args[1], err)
}
