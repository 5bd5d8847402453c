package kernels

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// guestModules are what a guest loads: file systems, what they need without saying so, devices out of files for them, wires
// between network namespaces, and what encapsulates packets.
var guestModules = []string{"crc32c_generic", "loop", "ext4", "xfs", "btrfs", "veth", "tun", "vxlan", "geneve", "ipip", "sit",
	"ip6_tunnel"}

// networkModules are what guests with a network load besides: its device, bridges, and what translates addresses.
var networkModules = []string{"crc32c_generic", "e1000", "veth", "bridge", "iptable_nat", "xt_nat", "xt_MASQUERADE",
	"xt_tcpudp", "nf_conntrack_netlink"}

// rdmaModules are what guests with RDMA load: soft-RoCE, what it needs without saying so, and a wire that loses packets.
var rdmaModules = []string{"crc32c_generic", "crc32_generic", "veth", "ib_uverbs", "rdma_rxe", "sch_netem"}

// clockModules are what guests load whose network card has a clock.
var clockModules = []string{"crc32c_generic", "e1000e"}

// moduleSuffix is what files with modules end with.
const moduleSuffix = ".ko"

// module is one of a package.
type module struct {
	content    []byte
	compressed bool
}

// moduleName is the kernel's name of a module that guests may need.
func moduleName(path string) (name string, ok bool) {
	_, below, found := strings.Cut(path, "/kernel/")
	if !found {
		return "", false
	}
	for _, dir := range []string{"fs/", "lib/", "crypto/", "arch/x86/crypto/", "drivers/block/", "drivers/infiniband/", "drivers/net/",
		"drivers/pps/", "drivers/ptp/", "net/"} {
		ok = ok || strings.HasPrefix(below, dir)
	}
	name, isModule := strings.CutSuffix(strings.TrimSuffix(filepath.Base(below), ".xz"), moduleSuffix)
	return strings.ReplaceAll(name, "-", "_"), ok && isModule
}

// writeModules writes modules and what they depend on, under names in the order in which they can be loaded. One of the
// former that is not there is in the kernel itself.
func writeModules(all map[string]module, wanted []string, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	written, place := map[string]bool{}, 0
	var write func(name string) error
	write = func(name string) error {
		if written[name] {
			return nil
		}
		m := all[name]
		written[name] = true
		if m.compressed {
			command := exec.Command("xz", "-dc")
			command.Stdin = bytes.NewReader(m.content)
			content, err := command.Output()
			if err != nil {
				return fmt.Errorf("module %s: xz: %w", name, err)
			}
			m.content = content
		}
		needed, err := dependencies(m.content)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, other := range needed {
			if _, ok := all[other]; !ok {
				return fmt.Errorf("module %s needs %s, which is not there", name, other)
			}
			if err := write(other); err != nil {
				return err
			}
		}
		place++
		return os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d-%s%s", place, name, moduleSuffix)), m.content, 0o644)
	}
	for _, name := range wanted {
		if _, ok := all[name]; !ok {
			continue
		}
		if err := write(name); err != nil {
			return err
		}
	}
	return nil
}

// dependencies are the modules that a module says it needs.
func dependencies(content []byte) (names []string, err error) {
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("it says nothing of itself")
	}
	text, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range bytes.SplitSeq(text, []byte{0}) {
		if list, ok := strings.CutPrefix(string(field), "depends="); ok && list != "" {
			names = append(names, strings.Split(list, ",")...)
		}
	}
	return names, nil
}
