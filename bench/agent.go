package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	benchImage = "outsight-bench"
	benchLabel = "outsight-bench"
	// settle lets the agent get over its start, observe is the stretch that is measured.
	settle  = 10 * time.Second
	observe = 30 * time.Second
)

// measureAgent takes the CPU time and memory of each agent while it watches many containers that
// do little.
func measureAgent(ctx context.Context, o options) ([]row, error) {
	defer removeContainers()
	if err := startContainers(ctx, o.containers); err != nil {
		return nil, err
	}
	var rows []row
	for _, program := range []string{"outsight agent", "outsight-agent"} {
		measured, err := costOf(ctx, o, program)
		if err != nil {
			return nil, err
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

func costOf(ctx context.Context, o options, program string) ([]row, error) {
	a, err := startAgent(ctx, o, program)
	if err != nil {
		return nil, err
	}
	defer a.stop()
	progress("%s: watching %d containers for %v", program, o.containers, observe)
	if err := sleep(ctx, settle); err != nil {
		return nil, err
	}
	pid, begun := a.command.Process.Pid, time.Now()
	before, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, observe); err != nil {
		return nil, err
	}
	after, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	window := time.Since(begun)
	rss, err := residentBytes(pid)
	if err != nil {
		return nil, err
	}
	watching := fmt.Sprintf("%s, %d containers", program, o.containers)
	return []row{
		{what: watching + ": CPU", value: 100 * (after - before).Seconds() / window.Seconds(), unit: "% of a core",
			budget: 0.5, detail: fmt.Sprintf("schedstat of its threads over %v", window.Round(time.Second))},
		{what: watching + ": resident memory", value: float64(rss) / (1 << 20), unit: "MiB", budget: 50, detail: "VmRSS"},
	}, nil
}

// importImage makes an image of the files of a tar archive.
func importImage(ctx context.Context, image string, archive io.Reader) error {
	load := exec.CommandContext(ctx, "docker", "import", "-", image)
	load.Stdin = archive
	if out, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("docker import: %w: %s", err, out)
	}
	return nil
}

func startContainers(ctx context.Context, n int) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: "busybox", Typeflag: tar.TypeReg, Mode: 0o755,
		Size: int64(len(program))}); err != nil {
		return err
	}
	if _, err := w.Write(program); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := importImage(ctx, benchImage, &archive); err != nil {
		return err
	}
	progress("starting %d containers", n)
	for i := range n {
		_, err := output(ctx, "docker", "run", "-d", "--label", benchLabel, "--name",
			fmt.Sprintf("outsight-bench-%d-%d", os.Getpid(), i),
			benchImage, "/busybox", "sh", "-c", "while /busybox sleep 1; do :; done")
		if err != nil {
			return err
		}
	}
	return nil
}

func removeContainers() {
	out, _ := exec.Command("docker", "ps", "-aq", "--filter", "label="+benchLabel).Output()
	if ids := strings.Fields(string(out)); len(ids) > 0 {
		exec.Command("docker", append([]string{"rm", "-f"}, ids...)...).Run()
	}
	exec.Command("docker", "rmi", "-f", benchImage).Run()
}

// cpuTime is the CPU time of all threads of a process. The scheduler's own sum is exact to the
// nanosecond, where /proc/PID/stat counts in ticks of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading schedstat of task %s: %w", task.Name(), err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

func residentBytes(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	var kib uint64
	if _, err := fmt.Sscanf(after, "%d kB", &kib); err != nil {
		return 0, fmt.Errorf("reading VmRSS of process %d: %w", pid, err)
	}
	return kib << 10, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
