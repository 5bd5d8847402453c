package region

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Hook is where a host's packets are taken.
type Hook string

const (
	// HookAuto is the first that works of HookNative, HookGeneric and HookTCX. HookNative is left out for veth: there
	// packets would be lost unless the other end has a program, or generic receive offload, as well.
	HookAuto Hook = "auto"
	// HookNative is XDP in the driver, before the kernel makes a socket buffer. An interface has one program of XDP.
	HookNative Hook = "native"
	// HookGeneric is XDP after the driver, with any driver.
	HookGeneric Hook = "generic"
	// HookTCX is the traffic control of incoming packets (Linux 6.6), which other programs share.
	HookTCX Hook = "tcx"
)

// ParseHook is the hook of a name.
func ParseHook(name string) (Hook, error) {
	switch h := Hook(name); h {
	case HookAuto, HookNative, HookGeneric, HookTCX:
		return h, nil
	}
	return "", fmt.Errorf("hook is %q, want auto, native, generic or tcx", name)
}

func (h Hook) readProgram() string {
	if h == HookTCX {
		return regionProgReadTcx
	}
	return regionProgReadXdp
}

func (h Hook) answerProgram() string {
	if h == HookTCX {
		return regionProgAnswerTcx
	}
	return regionProgAnswerXdp
}

// refuseProgram answers for regions that there are not.
func (h Hook) refuseProgram() string {
	if h == HookTCX {
		return regionProgRefuseTcx
	}
	return regionProgRefuseXdp
}

// attach attaches to the first hook that takes the program.
func (r *Responder) attach(o Options, device *net.Interface) error {
	tried := []Hook{o.Hook}
	if o.Hook == HookAuto {
		tried = []Hook{HookNative, HookGeneric, HookTCX}
	}
	for _, hook := range tried {
		if o.Hook == HookAuto && hook == HookNative && isVeth(device) {
			r.refusals = append(r.refusals, fmt.Errorf("%s at interface %q: not chosen by itself for veth", hook, device.Name))
			continue
		}
		// A map of programs takes only those of the first one's type: each hook has maps of its own.
		err := r.tryAttach(o, device, hook)
		if err == nil {
			r.hook = hook
			return nil
		}
		r.refusals = append(r.refusals, fmt.Errorf("%s at interface %q: %w", hook, device.Name, errors.Join(err, r.Close())))
	}
	return fmt.Errorf("attaching the responder: %w", errors.Join(r.refusals...))
}

func (r *Responder) tryAttach(o Options, device *net.Interface, hook Hook) error {
	if err := r.makeMaps(o); err != nil {
		return err
	}
	r.keys = make(map[uint32]bool)
	if err := r.SetKeys(o.Keys); err != nil {
		return err
	}
	program, err := r.load(hook.readProgram(), hook, 0, nil)
	if err != nil {
		return err
	}
	r.program = program
	r.closers = append(r.closers, program)
	if err := r.answerForNone(hook); err != nil {
		return err
	}
	var attached link.Link
	if hook == HookTCX {
		attached, err = link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: program,
			Attach: ebpf.AttachTCXIngress})
	} else {
		flags := link.XDPGenericMode
		if hook == HookNative {
			flags = link.XDPDriverMode
		}
		attached, err = link.AttachXDP(link.XDPOptions{Interface: device.Index, Program: program, Flags: flags})
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			err = fmt.Errorf("it has another XDP program: %w", err)
		}
	}
	if err != nil {
		return err
	}
	r.closers = append(r.closers, attached)
	return nil
}

// answerForNone answers for regions that there are not.
func (r *Responder) answerForNone(hook Hook) error {
	program, err := r.load(hook.refuseProgram(), hook, 0, nil)
	if err != nil {
		return err
	}
	defer program.Close() // the map of programs keeps it
	regions := r.maps.Maps[regionMapRegions]
	return regions.Put(regions.MaxEntries()-1, program)
}

// load loads one program for a hook, with constants of its own; of is the region that it answers for, and id its number.
func (r *Responder) load(name string, hook Hook, id uint32, of *ebpf.Map) (*ebpf.Program, error) {
	spec := r.spec.Copy()
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	shared := make(map[string]*ebpf.Map, len(r.maps.Maps)+1)
	for name, m := range r.maps.Maps {
		shared[name] = m
	}
	err := spec.Variables[regionVarHasBuffer].Set(hook != HookNative)
	if of != nil {
		region := spec.Maps[regionMapRegion]
		region.ValueSize, region.MaxEntries, region.Flags = of.ValueSize(), of.MaxEntries(), of.Flags()
		region.Key, region.Value = nil, nil
		shared[regionMapRegion] = of
		err = errors.Join(err, spec.Variables[regionVarRegionBytes].Set(regionBytes(of)),
			spec.Variables[regionVarRegionNumber].Set(id))
	}
	if err != nil {
		return nil, fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	return loaded.DetachProgram(name), nil
}

func isVeth(device *net.Interface) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, device.Name)
	return err == nil && unix.ByteSliceToString(info.Driver[:]) == "veth"
}

// hasEthernet: packets of other interfaces begin otherwise. The loopback interface has such headers, with no addresses.
func hasEthernet(device *net.Interface) error {
	if len(device.HardwareAddr) == 6 || device.Flags&net.FlagLoopback != 0 {
		return nil
	}
	return fmt.Errorf("interface %q has no Ethernet headers", device.Name)
}
