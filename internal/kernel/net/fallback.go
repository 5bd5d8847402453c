package net

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"outsight/internal/kernel/host"
	"outsight/internal/monotonic"
)

const (
	sentPurpose     = "bytes sent and transactions per edge"
	receivedPurpose = "bytes received and transactions per edge"
	dataRemedy      = "kernel 6.3 or later with BTF, or one with BPF trampolines (5.12 or later on x86)"
)

// dataWays in the order in which they are tried: the cheapest and most stable first.
var dataWays = []host.Way{
	{
		host.NewHook("sock_send_length", "tp_btf/sock_send_length", sentPurpose, true, dataRemedy),
		host.NewHook("sock_recv_length", "tp_btf/sock_recv_length", receivedPurpose, true, dataRemedy),
	},
	{
		host.NewHook("after_inet_sendmsg", "fexit/inet_sendmsg", sentPurpose, true, dataRemedy),
		host.NewHook("after_inet_recvmsg", "fexit/inet_recvmsg", receivedPurpose, true, dataRemedy),
		host.NewHook("after_inet6_sendmsg", "fexit/inet6_sendmsg", sentPurpose+" (IPv6)", true, dataRemedy),
		host.NewHook("after_inet6_recvmsg", "fexit/inet6_recvmsg", receivedPurpose+" (IPv6)", true, dataRemedy),
	},
}

// pageHook is needed beside any way where the kernel has its function.
var pageHook = host.NewHook("after_inet_sendpage", "fexit/inet_sendpage", "bytes sent from files (sendfile, splice)",
	false,
	"kernel 6.5 or later with BTF, or one with BPF trampolines")

// http2Hook is no program: it is the part of the data hooks that is most likely too much for a verifier.
var http2Hook = host.NewHook("", "http2", "streams of HTTP/2 and gRPC, each a transaction", false,
	"a kernel whose verifier accepts it: Debian's 6.1 and later do")

// http2Functions are those through which the data hooks come to HTTP/2. Each answers 0 where there is
// nothing to follow.
var http2Functions = []string{"http2_transferred", "follow_http2", "chain_of"}

// attachData tries one way after another, each first with HTTP/2 and then without; if none works, the error
// has the reasons of all.
func (p *Net) attachData(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection) error {
	var errs []error
	for _, w := range p.dataWays() {
		data := spec
		unfollowed := p.AttachAll(k, data, maps, w)
		err := unfollowed
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			data = withoutFunctions(spec, http2Functions)
			err = p.AttachAll(k, data, maps, w)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, h := range w {
			p.AddFeature(h, nil)
		}
		p.AddFeature(http2Hook, unfollowed)
		if len(errs) > 0 {
			p.Logger.Info("another way is used to count transfers", "way", w.String(), "because", errors.Join(errs...))
		}
		return errors.Join(p.attachPages(k, data, maps), p.watch(true))
	}
	none := errors.Join(errs...)
	for _, h := range append(dataWays[0], http2Hook) {
		p.AddFeature(h, none)
	}
	return none
}

func (p *Net) dataWays() []host.Way {
	if p.options.DataWay > 0 {
		return dataWays[p.options.DataWay-1 : p.options.DataWay]
	}
	return dataWays
}

// watch lets the data hooks count, or not. Connections are judged anew afterwards.
func (p *Net) watch(on bool) error {
	if p.edges == nil {
		return nil
	}
	if on {
		p.edges.watched++
	}
	if err := p.edges.objects.WatchedSinceNs.Set(monotonic.Now()); err != nil {
		return fmt.Errorf("setting since when the data hooks count: %w", err)
	}
	return p.goOnWatching(on)
}

// goOnWatching lets the data hooks count, or not, as if they had all the time.
func (p *Net) goOnWatching(on bool) error {
	if p.edges == nil {
		return nil
	}
	watching := uint32(0)
	if on {
		watching = p.edges.watched
	}
	if err := p.edges.objects.Watching.Set(watching); err != nil {
		return fmt.Errorf("letting the data hooks count: %w", err)
	}
	return nil
}

// setNamesShed lets requests be timed without being read (1), or read again (0).
func (r *edgeReader) setNamesShed(shed uint32) error {
	if err := r.objects.NamesShed.Set(shed); err != nil {
		return fmt.Errorf("changing whether requests are read: %w", err)
	}
	return nil
}

// attachPages counts what is sent from files where the kernel has a way of its own for that.
func (p *Net) attachPages(k *host.Kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection) error {
	types, err := k.Types.Kernel()
	if err != nil {
		return err
	}
	var function *btf.Func
	if types.TypeByName("inet_sendpage", &function) != nil {
		return nil
	}
	return p.Attach(k, spec, maps, pageHook)
}

// withoutFunctions is the object with functions that do nothing and return 0. What only they call is gone:
// older verifiers check functions that nobody calls.
func withoutFunctions(spec *ebpf.CollectionSpec, names []string) *ebpf.CollectionSpec {
	spec = spec.Copy()
	for _, program := range spec.Programs {
		order, functions := host.FunctionsOf(program.Instructions)
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
