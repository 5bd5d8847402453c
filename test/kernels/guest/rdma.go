package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"outsight/internal/region"
	"outsight/internal/region/rdma"
	"outsight/internal/region/shm"
)

// The two RDMA devices: soft-RoCE on the ends of a cable, whose packets go over the cable although both ends are of
// this host. Soft-RoCE in network namespaces does not work up to Linux 6.12.
const (
	rdmaHost, rdmaReader    = "rxe1", "rxe0"
	rdmaAddress             = "192.0.2.2"
	rdmaRegions             = rdmaAddress + ":8473"
	rdmaSocket              = "/run/region.sock"
	rdmaKeys                = "/run/region.keys"
	rdmaKeyText             = "1 00112233445566778899aabbccddeeff\n"
	rdmaWrites, rdmaHelper  = "/outsight-rdma-writes", "outsight-rdma"
	compared                = 1 << 20 // bytes of each region
	rdmaSettled, rdmaEnding = 20 * time.Second, 30 * time.Second
	// rdmaInterval is how long a reading may take: a guest's clock runs several times too fast where its host was busy
	// when the guest measured it.
	rdmaInterval = 5 * time.Second
)

// rdmaDevices sets the devices up.
func rdmaDevices() (string, error) {
	modules, err := loadModules("/modules")
	if err != nil {
		return "", err
	}
	if err := commands(`
		ip link add v0 type veth peer name v1
		ip address add 192.0.2.1/32 dev v0
		ip address add 192.0.2.2/32 dev v1
		ip link set v0 mtu 4200 up
		ip link set v1 mtu 4200 up`); err != nil {
		return "", err
	}
	for _, name := range []string{"all", "v0", "v1"} {
		for file, value := range map[string]string{"accept_local": "1", "rp_filter": "0"} {
			if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", name, file), []byte(value), 0); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("%d modules", modules), commands(`
		ip route add 192.0.2.2/32 dev v0 src 192.0.2.1
		ip route add 192.0.2.1/32 dev v1 src 192.0.2.2
		ip rule add pref 10 iif v0 lookup local
		ip rule add pref 11 iif v1 lookup local
		ip rule add pref 20 to 192.0.2.0/24 lookup main
		ip rule add pref 30 lookup local
		ip rule del pref 0
		rdma link add rxe0 type rxe netdev v0
		rdma link add rxe1 type rxe netdev v1`)
}

// rdmaTests runs the tests of the package.
func rdmaTests() (string, error) {
	// The test that is left out reads a page of the sources.
	command := exec.Command("/rdma.test", "-test.v", "-test.skip=RDMAPage")
	command.Env = append(os.Environ(), "OUTSIGHT_RDMA_HOST="+rdmaHost, "OUTSIGHT_RDMA_READER="+rdmaReader,
		"OUTSIGHT_RDMA_ADDRESS="+rdmaAddress)
	note, output, err := runAllTests(command)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(output)) {
		if _, figures, ok := strings.Cut(line, "emulated: "); ok {
			note += "; " + strings.TrimSpace(figures)
		}
	}
	return note, nil
}

// agentByRDMA reads what a real agent counts, by RDMA and by shared memory, while the agent is stopped.
func agentByRDMA() (note string, err error) {
	if err := os.WriteFile(rdmaKeys, []byte(rdmaKeyText), 0o600); err != nil {
		return "", err
	}
	agent, ended, err := startAgent("/outsight", "agent", "--times-only", "--packets=false", "--flight", "0",
		"--max-edges", "256", "--max-groups", "64", "--region-socket", rdmaSocket, "--region-listen", rdmaRegions,
		"--region-key-file", rdmaKeys, "--region-rdma", rdmaHost)
	if err != nil {
		return "", err
	}
	defer func() {
		agent.Kill()
		<-ended
	}()
	if err := eventually(ended, func() error { _, err := metrics(); return err }); err != nil {
		return "", err
	}
	if err := edgeCounts(ended); err != nil {
		return "", err
	}
	collect := exec.Command("/outsight", "collect", "--from", rdmaRegions, "--key-file", rdmaKeys, "--transport", "rdma",
		"--rdma-device", rdmaReader, "--output", "json", "--interval", rdmaInterval.String())
	collect.Stderr = os.Stdout
	out, err := collect.StdoutPipe()
	if err == nil {
		err = collect.Start()
	}
	if err != nil {
		return "", err
	}
	defer func() {
		collect.Process.Kill()
		collect.Wait()
	}()
	readings := bufio.NewReader(out)
	if err := eventually(ended, func() error {
		first, err := nextReading(readings)
		if err == nil && (first.Late || first.Transport != "rdma" || len(first.Edges) < 2) {
			err = fmt.Errorf("outsight collect says %+v", first)
		}
		return err
	}); err != nil {
		return "", err
	}
	program, err := startProgram(readings)
	if err != nil {
		return "", err
	}
	defer program.end()
	note, err = compareStopped(agent, program, readings)
	if err != nil {
		return note, err
	}
	return note, afterTheEnd(agent, ended, readings)
}

// reading is what outsight collect says of one.
type reading struct {
	Transport, Why string
	Late           bool
	Edges          []json.RawMessage
	Containers     []struct{ Applications map[string]float64 }
}

func nextReading(from *bufio.Reader) (r reading, err error) {
	line, err := from.ReadBytes('\n')
	if err != nil {
		return r, err
	}
	var all []reading
	if err := json.Unmarshal(line, &all); err != nil || len(all) != 1 {
		return r, fmt.Errorf("%s: %w", line, err)
	}
	return all[0], nil
}

// compareStopped stops the agent, and compares what RDMA and shared memory say of its maps. Its helper must not run
// meanwhile.
func compareStopped(agent *os.Process, program *program, readings *bufio.Reader) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	keys, err := region.ParseKeys([]byte(rdmaKeyText))
	if err != nil {
		return "", err
	}
	near, err := shm.Open(ctx, rdmaSocket, shm.Options{})
	if err != nil {
		return "", err
	}
	defer near.Close()
	far, err := rdma.Dial(ctx, rdmaRegions, keys[0], rdma.Options{Device: rdmaReader})
	if err != nil {
		return "", err
	}
	defer far.Close()
	writer, err := rdma.Dial(ctx, rdmaRegions, keys[0], rdma.Options{Device: rdmaReader, Helper: rdmaWrites})
	if err != nil {
		return "", err
	}
	defer writer.Close()
	programs, err := rdma.Dial(ctx, rdmaRegions, keys[0], rdma.Options{Device: rdmaReader, Helper: rdmaWrites})
	if err != nil {
		return "", err
	}
	defer programs.Close()
	// The agent is asked for the file, and may take longer to answer than a reader waits at a time.
	if err := within(rdmaSettled, make(chan struct{}), func() error {
		_, err := jobsOf(ctx, region.NewCollector(near))
		return err
	}); err != nil {
		return "", err
	}
	helper, err := servingHelper()
	if err != nil {
		return "", err
	}
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	defer agent.Signal(syscall.SIGCONT)
	var before string // when it has gone to sleep
	err = within(rdmaSettled, make(chan struct{}), func() error {
		last := before
		if before, err = switches(helper); err == nil && before != last {
			err = fmt.Errorf("the helper runs: %s", before)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	words, still, err := compareBytes(ctx, near, far)
	if err != nil {
		return "", err
	}
	if err := compareFigures(ctx, near, far); err != nil {
		return "", err
	}
	for range 2 { // one may have been read before the agent was stopped
		r, err := nextReading(readings)
		if err == nil && r.Late {
			err = fmt.Errorf("while the agent is stopped, outsight collect says %+v", r)
		}
		if err != nil {
			return "", err
		}
	}
	if err := writeIsRefused(ctx, near, writer); err != nil {
		return "", err
	}
	counted, err := program.compare(ctx, near, far, programs)
	if err != nil {
		return "", fmt.Errorf("a C program: %w", err)
	}
	after, err := switches(helper)
	if err == nil && before != after {
		err = fmt.Errorf("the helper ran while the agent's maps were read: %s, then %s", before, after)
	}
	return fmt.Sprintf("%d words equal of %d; %s; the helper meanwhile: %s", still, words, counted, after), err
}

// compareBytes holds that each word of the first part of each region that did not change is the same by both readers.
func compareBytes(ctx context.Context, near, far region.Reader) (words, still int, err error) {
	control, err := region.ReadControl(ctx, near)
	if err != nil {
		return 0, 0, err
	}
	sizes := map[uint32]uint64{region.ControlID: 4096, region.DictionaryID: 4096}
	for _, r := range control.Regions {
		if r.Index != region.IndexCPU { // what runs on a CPU at the moment is the reader
			sizes[r.ID] = min(r.Bytes(), compared)
		}
	}
	for id, size := range sizes {
		copies, err := threeCopies(ctx, near, far, id, 0, size)
		if err != nil {
			return words, still, err
		}
		for at := uint64(0); at < size; at += 8 {
			words++
			if !bytes.Equal(copies[0][at:at+8], copies[2][at:at+8]) {
				continue
			}
			still++
			if bytes.Equal(copies[0][at:at+8], copies[1][at:at+8]) {
				continue
			}
			// A level may have gone up and down again.
			if err := compareWord(ctx, near, far, id, at); err != nil {
				return words, still, err
			}
		}
	}
	if still < words/2 {
		return words, still, fmt.Errorf("only %d of %d words did not change", still, words)
	}
	return words, still, nil
}

// threeCopies are read near, far, and near again.
func threeCopies(ctx context.Context, near, far region.Reader, id uint32, offset, size uint64) (copies [3][]byte, err error) {
	for i, reader := range []region.Reader{near, far, near} {
		copies[i] = make([]byte, size)
		if err := reader.Read(ctx, id, offset, copies[i]); err != nil {
			return copies, fmt.Errorf("region %d: %w", id, err)
		}
	}
	return copies, nil
}

// compareWord reads one word until it is the same three times.
func compareWord(ctx context.Context, near, far region.Reader, id uint32, at uint64) error {
	for tries := 0; ; tries++ {
		copies, err := threeCopies(ctx, near, far, id, at, 8)
		if err != nil {
			return err
		}
		if bytes.Equal(copies[0], copies[1]) && bytes.Equal(copies[1], copies[2]) {
			return nil
		}
		if tries == 20 {
			return fmt.Errorf("region %d at %d is %x, by RDMA %x, and then %x", id, at, copies[0], copies[1], copies[2])
		}
	}
}

// compareFigures holds that the figures of the two groups, which are at rest, and of their edges are the same.
func compareFigures(ctx context.Context, near, far region.Reader) error {
	var figures [2]map[string]region.Figures
	for i, reader := range []region.Reader{near, far} {
		s, err := region.NewCollector(reader).Collect(ctx)
		if err != nil {
			return err
		}
		figures[i] = map[string]region.Figures{}
		for _, c := range s.Containers {
			if slices.Contains([]string{strings.Repeat("a", 64), strings.Repeat("b", 64)}, c.ID) {
				figures[i]["container "+c.ID[:1]] = c.Figures
			}
		}
		for _, e := range s.Edges {
			if e.Key.Service.String() == serverAddress {
				figures[i]["edge of the "+e.Key.Role.String()] = e.Figures
			}
		}
	}
	if names := slices.Sorted(maps.Keys(figures[0])); len(names) != 4 {
		return fmt.Errorf("there are figures of %q, want of two containers and two ends", names)
	}
	for name, want := range figures[0] {
		if got := figures[1][name]; !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s by RDMA: %s, want %s", name, textOf(got), textOf(want))
		}
	}
	return nil
}

func textOf(f region.Figures) string {
	var text strings.Builder
	for i := range f {
		fmt.Fprintf(&text, "%s %v; ", f[i].Metric.Series(), f[i].Value())
	}
	return text.String()
}

// writeIsRefused has a reader that writes where it should read.
func writeIsRefused(ctx context.Context, near, writer region.Reader) error {
	const id, size = region.FirstDataID, 512
	before, after := make([]byte, size), make([]byte, size)
	if err := near.Read(ctx, id, 0, before); err != nil {
		return err
	}
	if err := writer.Read(ctx, id, 0, make([]byte, size)); !errors.Is(err, region.ErrRefused) {
		return fmt.Errorf("a write to a map: %w", err)
	}
	if err := near.Read(ctx, id, 0, after); err != nil {
		return err
	}
	if !bytes.Equal(before, after) {
		return errors.New("a write that was refused has changed the map")
	}
	return nil
}

// afterTheEnd kills the agent: its helper ends with it, and the reader says why there are no figures.
func afterTheEnd(agent *os.Process, ended <-chan struct{}, readings *bufio.Reader) error {
	if err := agent.Kill(); err != nil {
		return err
	}
	<-ended
	for end := time.Now().Add(rdmaEnding); ; {
		r, err := nextReading(readings)
		if err != nil {
			return err
		}
		if r.Late {
			if !strings.HasPrefix(r.Why, "gone: ") {
				return fmt.Errorf("the agent was killed, and outsight collect says %q", r.Why)
			}
			fmt.Println("guest: outsight collect says", r.Why)
			break
		}
		if time.Now().After(end) {
			return errors.New("the agent was killed, and outsight collect reads on")
		}
	}
	return within(rdmaSettled, make(chan struct{}), func() error {
		if pid, err := servingHelper(); err == nil {
			return fmt.Errorf("the helper %s has outlived its agent", pid)
		}
		return nil
	})
}

// servingHelper is the number of the helper that serves.
func servingHelper() (string, error) {
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return "", err
	}
	for _, file := range processes {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(rdmaHelper+"\x00serve\x00")) {
			return filepath.Base(filepath.Dir(file)), nil
		}
	}
	return "", errors.New("no helper serves")
}

// switches are the context switches of a process of one thread.
func switches(pid string) (string, error) {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return "", err
	}
	var all []string
	for line := range strings.Lines(string(status)) {
		for _, name := range []string{"Threads", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches", "Uid"} {
			if strings.HasPrefix(line, name+":") {
				all = append(all, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	return strings.Join(all, ", "), nil
}
