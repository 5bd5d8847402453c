package rdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/region"
)

// Program is the name of the helper. It is looked for beside the running program, and then in PATH.
const Program = "outsight-rdma"

// helperWait bounds how long the helper may take for anything but reads.
const helperWait = 30 * time.Second

// nobody is the user and the group that the helper runs as on a host that is read.
const nobody = 65534

// ErrHelper: the helper has ended.
var ErrHelper = errors.New("the program " + Program + " has ended")

// completionError is a read that the other end, or the way to it, did not carry out.
type completionError struct {
	// status is that of enum ibv_wc_status.
	status uint32
	text   string
}

func (e *completionError) Error() string {
	return fmt.Sprintf("RDMA READ failed: %s (status %d)", e.text, e.status)
}

// Statuses of completions, of infiniband/verbs.h.
const (
	statusRemoteInvalidRequest = 9
	statusRemoteAccess         = 10
	statusRetriesExceeded      = 12
)

// helper is a running outsight-rdma.
type helper struct {
	// device is the name of the one that it uses.
	device string
	// mu is held from a question to its answer.
	mu     sync.Mutex
	socket *net.UnixConn
	ended  chan struct{}
	cmd    *exec.Cmd
}

// answer is a reply of the helper.
type answer struct {
	own endpoint
	// address and key of memory that was registered.
	address uint64
	key     uint32
}

// startHelper starts it as role "serve" or "read" with a device; empty is the first that works. path is where the
// program is; empty is where it is looked for.
func startHelper(path, role, device string) (*helper, error) {
	if path == "" {
		var err error
		if path, err = find(); err != nil {
			return nil, err
		}
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	own, other := os.NewFile(uintptr(ends[0]), Program), os.NewFile(uintptr(ends[1]), Program)
	defer other.Close()
	socket, err := net.FileConn(own)
	own.Close()
	if err != nil {
		return nil, err
	}
	h := &helper{socket: socket.(*net.UnixConn), ended: make(chan struct{})}
	start := func(as *syscall.Credential) error {
		h.cmd = exec.Command(path, role, device)
		h.cmd.ExtraFiles = []*os.File{other}
		h.cmd.Stderr = os.Stderr
		h.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		return h.cmd.Start()
	}
	var as *syscall.Credential
	if role == "serve" && os.Getuid() == 0 {
		as = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	// An agent that its service has left no right to change users does without.
	if err = start(as); errors.Is(err, unix.EPERM) && as != nil {
		err = start(nil)
	}
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("starting %s: %w", Program, err)
	}
	// What is registered is locked. Without the right to say so the limit stays as it is, and registering says what it is.
	_ = unix.Prlimit(h.cmd.Process.Pid, unix.RLIMIT_MEMLOCK,
		&unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
	go func() {
		_ = h.cmd.Wait() // that it has ended is all there is to know
		close(h.ended)
	}()
	text, _, err := h.receive(time.Now().Add(helperWait))
	if err != nil {
		h.close()
		return nil, err
	}
	h.device = text
	return h, nil
}

// find looks for the helper.
func find() (string, error) {
	if own, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(own), Program)); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(Program)
	if err != nil {
		return "", fmt.Errorf("RDMA needs the program %s, which is built where libibverbs is: %w", Program, err)
	}
	return path, nil
}

// ask sends a message, with a descriptor where file is not nil, and takes the answer, for which the helper has so long.
// After an error that is none of the helper's own it has ended.
func (h *helper) ask(message []byte, file *os.File, within time.Duration) (answer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	deadline := time.Now().Add(within)
	if err := h.socket.SetWriteDeadline(deadline); err != nil {
		return answer{}, h.broken(err)
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := h.socket.WriteMsgUnix(message, rights, nil); err != nil {
		return answer{}, h.broken(err)
	}
	_, a, err := h.receive(deadline)
	return a, err
}

// receive takes a reply.
func (h *helper) receive(deadline time.Time) (text string, a answer, err error) {
	b := make([]byte, replyBytes+1)
	if err := h.socket.SetReadDeadline(deadline); err != nil {
		return "", a, h.broken(err)
	}
	n, err := h.socket.Read(b)
	if err == nil && n != replyBytes {
		err = fmt.Errorf("a reply of %d bytes, want %d: is it of another version?", n, replyBytes)
	}
	if err != nil {
		return "", a, h.broken(err)
	}
	return parseReply(b[:n])
}

// parseReply reads a reply of the helper.
func parseReply(b []byte) (text string, a answer, err error) {
	raw, _, _ := bytes.Cut(b[8:8+textBytes], []byte{0})
	text = string(bytes.ToValidUTF8(raw, []byte("?")))
	number, completion := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	a.own = endpoint(b[8+textBytes:])
	memory := b[8+textBytes+endpointBytes:]
	a.address, a.key = binary.LittleEndian.Uint64(memory), binary.LittleEndian.Uint32(memory[8:])
	switch {
	case completion != 0:
		err = &completionError{completion, text}
	case number != 0:
		err = fmt.Errorf("%s: %w", text, syscall.Errno(number))
	}
	return text, a, err
}

// broken ends a helper that does not answer as it should.
func (h *helper) broken(err error) error {
	h.socket.Close()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = h.cmd.Process.Kill() // it does not listen
	}
	return fmt.Errorf("%w: %w", ErrHelper, err)
}

func (h *helper) register(file *os.File, offset, length uint64) (answer, error) {
	b := binary.LittleEndian.AppendUint64(appendCommand(nil, commandRegister, 0), length)
	return h.ask(binary.LittleEndian.AppendUint64(b, offset), file, helperWait)
}

// forget ends what was registered with a key.
func (h *helper) forget(key uint32) error {
	_, err := h.ask(binary.LittleEndian.AppendUint32(appendCommand(nil, commandForget, 0), key), nil, helperWait)
	return err
}

// openQueue makes an end of a connection.
func (h *helper) openQueue() (endpoint, error) {
	a, err := h.ask(appendCommand(nil, commandOpen, 0), nil, helperWait)
	return a.own, err
}

func (h *helper) connect(queue uint32, peer endpoint) error {
	_, err := h.ask(append(appendCommand(nil, commandConnect, queue), peer[:]...), nil, helperWait)
	return err
}

func (h *helper) closeQueue(queue uint32) error {
	_, err := h.ask(appendCommand(nil, commandClose, queue), nil, helperWait)
	return err
}

// close ends the helper, and waits for it.
func (h *helper) close() error {
	err := h.socket.Close()
	select {
	case <-h.ended:
	case <-time.After(helperWait):
		err = errors.Join(err, h.cmd.Process.Kill())
		<-h.ended
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// asRegions is an error of a read as package region has it.
func asRegions(err error) error {
	var c *completionError
	switch {
	case errors.Is(err, unix.ETIMEDOUT):
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	case errors.As(err, &c) && c.status == statusRetriesExceeded:
		return fmt.Errorf("%w: the host does not answer: %w", region.ErrGone, err)
	case errors.As(err, &c) && (c.status == statusRemoteAccess || c.status == statusRemoteInvalidRequest):
		return fmt.Errorf("%w: %w", region.ErrRefused, err)
	}
	return err
}
