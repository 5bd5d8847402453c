package bpf

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
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

// attachData tries one way after another; if none works, the error has the reasons of all.
func (p *Probes) attachData(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection) error {
	var errs []error
	for _, w := range p.dataWays() {
		err := p.attachAll(k, spec, maps, w)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, h := range w {
			p.addFeature(h, nil)
		}
		if len(errs) > 0 {
			p.options.Logger.Info("another way is used to count transfers", "way", w.String(), "because", errors.Join(errs...))
		}
		return p.attachPages(k, spec, maps)
	}
	none := errors.Join(errs...)
	for _, h := range dataWays[0] {
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

// attachAll attaches all programs of a way, or none.
func (p *Probes) attachAll(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, w way) error {
	programs, closers := len(p.programs), len(p.closers)
	for _, h := range w {
		err := p.tryAttach(k, spec, maps, h)
		if err == nil {
			continue
		}
		for i := len(p.closers) - 1; i >= closers; i-- {
			err = errors.Join(err, p.closers[i].Close())
		}
		p.programs, p.closers = p.programs[:programs], p.closers[:closers]
		return fmt.Errorf("%s: %s", h.name, refusal(err))
	}
	return nil
}

func (p *Probes) tryAttach(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection, h hook) error {
	program, err := p.load(k, spec, maps, h)
	if err != nil {
		return err
	}
	a := &attachment{program: program}
	if err := a.attach(); err != nil {
		return err
	}
	p.attachments = append(p.attachments, a)
	p.onClose(a)
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

// maxThreads bounds the threads whose run-queue waits are known where tasks have no storage of
// their own. Each takes 80 bytes.
const maxThreads = 65536

// storeTasksIn makes task_states a hash by thread id where tasks have no storage (before 5.11).
func storeTasksIn(spec *ebpf.CollectionSpec) error {
	err := features.HaveMapType(ebpf.TaskStorage)
	if errors.Is(err, ebpf.ErrNotSupported) {
		states := spec.Maps["task_states"]
		states.Type, states.Flags, states.MaxEntries = ebpf.Hash, 0, maxThreads
	} else if err != nil {
		return fmt.Errorf("asking for task storage: %w", err)
	}
	return spec.Variables["tasks_have_storage"].Set(err == nil)
}
