package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRegionOnly has an agent that is there for readers alone. When it has fallen asleep, a container that begins has a name
// all the same, and memory that the container takes later is seen though the agent does not run for it: it is stopped.
func TestRegionOnly(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	path := filepath.Join(directory, "region.sock")
	agent := exec.Command(outsightBinary, "agent", "--region-only", "--region-socket", path, "--listen", "", "--socket",
		filepath.Join(directory, "agent.sock"))
	var output bytes.Buffer
	agent.Stdout, agent.Stderr = &output, &output
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		agent.Process.Signal(syscall.SIGINT)
		if err := agent.Wait(); err != nil {
			t.Errorf("the agent ended with %v: %s", err, output.Bytes())
		}
	})
	time.Sleep(12 * time.Second) // it makes ten snapshots, and sleeps
	const grows = 32 << 20
	c := shell(t, "region-only", fmt.Sprintf(`while [ ! -e /tmp/go ]; do sleep 0.2; done
busybox dd if=/dev/zero of=/dev/shm/x bs=1M count=%d && echo grown; sleep 3600`, grows>>20))
	memory := func(h *collectedHost) float64 {
		if found := h.container(c.name); found != nil {
			for series, v := range found.Metrics {
				if strings.HasPrefix(series, "container_memory_usage_bytes") {
					return v
				}
			}
		}
		return 0
	}
	var before float64
	eventually(t, func() error {
		h, err := collect(t, nil, path)
		if before = memory(&h); err != nil || before == 0 {
			return errors.Join(fmt.Errorf("%s has no memory: %+v", c.name, h.container(c.name)), err)
		}
		return nil
	})
	until := stream(t, path)
	until("before", func(h collectedHost) bool { return memory(&h) > 0 })
	if err := agent.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer agent.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
	c.exec("busybox", "touch", "/tmp/go")
	c.says("grown")
	until("of the memory that was taken", func(h collectedHost) bool {
		return memory(&h) >= before+grows/2 // it may take less for other things
	})
	if output := exec.Command(outsightBinary, "agent", "--region-only"); output.Run() == nil {
		t.Error("--region-only was taken without a place where regions are read")
	}
}
