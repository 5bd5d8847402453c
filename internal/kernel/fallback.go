package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// A way is a set of programs that together tell of every transfer of data. Only one is used.
type way []hook

const (
	sentPurpose     = "bytes sent and transactions per edge"
	receivedPurpose = "bytes received and transactions per edge"
	dataRemedy      = "kernel 6.3 or later with BTF, or one with BPF trampolines (5.12 or later on x86)"
)

// dataWays in the order in which they are tried: the cheapest and most stable first.
var dataWays = []way{
	{
		{"sock_send_length", "tp_btf/sock_send_length", sentPurpose, true, dataRemedy},
		{"sock_recv_length", "tp_btf/sock_recv_length", receivedPurpose, true, dataRemedy},
	},
	{
		{"after_inet_sendmsg", "fexit/inet_sendmsg", sentPurpose, true, dataRemedy},
		{"after_inet_recvmsg", "fexit/inet_recvmsg", receivedPurpose, true, dataRemedy},
		{"after_inet6_sendmsg", "fexit/inet6_sendmsg", sentPurpose + " (IPv6)", true, dataRemedy},
		{"after_inet6_recvmsg", "fexit/inet6_recvmsg", receivedPurpose + " (IPv6)", true, dataRemedy},
	},
}

// pageHook is needed beside any way where the kernel has its function.
var pageHook = hook{"after_inet_sendpage", "fexit/inet_sendpage", "bytes sent from files (sendfile, splice)", false,
	"kernel 6.5 or later with BTF, or one with BPF trampolines"}

// http2Hook is no program: it is the part of the data hooks that is most likely too much for a verifier.
var http2Hook = hook{"", "http2", "streams of HTTP/2 and gRPC, each a transaction", false,
	"a kernel whose verifier accepts it: Debian's 6.1 and later do"}

// http2Functions are those through which the data hooks come to HTTP/2. Each answers 0 where there is
// nothing to follow.
var http2Functions = []string{"http2_transferred", "follow_http2", "chain_of"}

// attachData tries one way after another, each first with HTTP/2 and then without; if none works, the error
// has the reasons of all.
func (p *Probes) attachData(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection) error {
	var errs []error
	for _, w := range p.dataWays() {
		data := spec
		unfollowed := p.attachAll(k, data, maps, w)
		err := unfollowed
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			data = withoutFunctions(spec, http2Functions)
			err = p.attachAll(k, data, maps, w)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, h := range w {
			p.addFeature(h, nil)
		}
		p.addFeature(http2Hook, unfollowed)
		if len(errs) > 0 {
			p.options.Logger.Info("another way is used to count transfers", "way", w.String(), "because", errors.Join(errs...))
		}
		return errors.Join(p.attachPages(k, data, maps), p.watch(true))
	}
	none := errors.Join(errs...)
	for _, h := range append(dataWays[0], http2Hook) {
		p.addFeature(h, none)
	}
	return none
}

func (p *Probes) dataWays() []way {
	if p.options.dataWay > 0 {
		return dataWays[p.options.dataWay-1 : p.options.dataWay]
	}
	return dataWays
}

func (w way) String() string {
	var names []string
	for _, h := range w {
		names = append(names, h.name)
	}
	return strings.Join(names, " ")
}

// hookError is why one of several hooks cannot be had.
type hookError struct {
	name  string
	cause error
}

func (e *hookError) Error() string { return e.name + ": " + refusal(e.cause) }

// Unwrap is the cause.
func (e *hookError) Unwrap() error { return e.cause }

// attachAll attaches all programs of a way, or none.
func (p *Probes) attachAll(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, w way) error {
	programs, attachments, closers := len(p.programs), len(p.attachments), len(p.closers)
	for _, h := range w {
		err := p.tryAttach(k, spec, maps, h)
		if err == nil {
			continue
		}
		for i := len(p.closers) - 1; i >= closers; i-- {
			err = errors.Join(err, p.closers[i].Close())
		}
		p.programs, p.attachments, p.closers = p.programs[:programs], p.attachments[:attachments], p.closers[:closers]
		return &hookError{h.name, err}
	}
	return nil
}

func (p *Probes) tryAttach(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h hook) error {
	program, err := p.load(k, spec, maps, h)
	if err != nil {
		return err
	}
	a := &attachment{function: h.program, name: h.name, program: program}
	if err := a.attach(); err != nil {
		return err
	}
	p.attachments = append(p.attachments, a)
	p.onClose(a)
	return nil
}

// watch lets the data hooks count, or not. Connections are judged anew afterwards.
func (p *Probes) watch(on bool) error {
	if p.edges == nil {
		return nil
	}
	if on {
		p.edges.watched++
	}
	if err := p.edges.maps.Variables["watched_since_ns"].Set(monotonicNS()); err != nil {
		return fmt.Errorf("telling the data hooks since when they count: %w", err)
	}
	return p.goOnWatching(on)
}

// goOnWatching lets the data hooks count, or not, as if they had all the time.
func (p *Probes) goOnWatching(on bool) error {
	if p.edges == nil {
		return nil
	}
	watching := uint32(0)
	if on {
		watching = p.edges.watched
	}
	if err := p.edges.maps.Variables["watching"].Set(watching); err != nil {
		return fmt.Errorf("letting the data hooks count: %w", err)
	}
	return nil
}

// setNamesShed lets requests be timed without being read (1), or read again (0).
func (r *edgeReader) setNamesShed(shed uint32) error {
	if err := r.maps.Variables["names_shed"].Set(shed); err != nil {
		return fmt.Errorf("changing whether requests are read: %w", err)
	}
	return nil
}

// attachPages counts what is sent from files where the kernel has a way of its own for that.
func (p *Probes) attachPages(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection) error {
	types, err := k.types.Kernel()
	if err != nil {
		return err
	}
	var function *btf.Func
	if types.TypeByName("inet_sendpage", &function) != nil {
		return nil
	}
	return p.attach(k, spec, maps, pageHook)
}

// withoutFunctions is the object with functions that do nothing and return 0. What only they call is gone:
// older verifiers check functions that nobody calls.
func withoutFunctions(spec *ebpf.CollectionSpec, names []string) *ebpf.CollectionSpec {
	spec = spec.Copy()
	for _, program := range spec.Programs {
		order, functions := functionsOf(program.Instructions)
		for _, name := range names {
			if body := functions[name]; body != nil {
				first := asm.Mov.Imm(asm.R0, 0).WithSymbol(name).WithSource(body[0].Source())
				functions[name] = asm.Instructions{btf.WithFuncMetadata(first, btf.FuncMetadata(&body[0])), asm.Return()}
			}
		}
		called := map[string]bool{}
		markCalled(functions, order[0], called)
		program.Instructions = nil
		for _, name := range order {
			if called[name] {
				program.Instructions = append(program.Instructions, functions[name]...)
			}
		}
	}
	return spec
}

// functionsOf are the functions of a program by their names; the first is where it begins.
func functionsOf(program asm.Instructions) (order []string, functions map[string]asm.Instructions) {
	functions = map[string]asm.Instructions{}
	for i, start := 1, 0; i <= len(program); i++ {
		if i == len(program) || program[i].Symbol() != "" {
			name := program[start].Symbol()
			order = append(order, name)
			functions[name] = program[start:i:i]
			start = i
		}
	}
	return order, functions
}

// markCalled adds a function and all that it calls.
func markCalled(functions map[string]asm.Instructions, name string, called map[string]bool) {
	if called[name] {
		return
	}
	called[name] = true
	for _, callee := range functions[name].FunctionReferences() {
		markCalled(functions, callee, called)
	}
}

// maxThreads bounds the threads whose run-queue waits are known where tasks have no storage of
// their own. Each takes 80 bytes.
const maxThreads = 65536

// storeTasksIn makes task_states a hash by thread id, with room for so many or maxThreads, where tasks have no
// storage (before 5.11), or anyway with most.
func storeTasksIn(spec *ebpf.CollectionSpec, most uint32) error {
	err := features.HaveMapType(ebpf.TaskStorage)
	if most > 0 {
		err = ebpf.ErrNotSupported
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		states := spec.Maps["task_states"]
		states.Type, states.Flags, states.MaxEntries = ebpf.Hash, 0, cmp.Or(most, maxThreads)
	} else if err != nil {
		return fmt.Errorf("asking for task storage: %w", err)
	}
	return spec.Variables["tasks_have_storage"].Set(err == nil)
}
