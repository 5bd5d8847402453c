package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const statsSwitch = "/proc/sys/kernel/bpf_stats_enabled"

// program is what bpftool tells of a loaded kernel program.
type program struct {
	ID        int    `json:"id"`
	Name      string `json:"name"`
	RunTimeNS uint64 `json:"run_time_ns"`
	RunCount  uint64 `json:"run_cnt"`
}

// measurePrograms turns the kernel's own statistics on and takes nanoseconds per run of every
// program of the agent while Redis is under load. The statistics add some 30 ns to each run.
func measurePrograms(ctx context.Context, o options) ([]row, error) {
	before, err := os.ReadFile(statsSwitch)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(statsSwitch, []byte("1"), 0); err != nil {
		return nil, err
	}
	defer os.WriteFile(statsSwitch, before, 0)

	run, stop, err := redisLoad.start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer stop()
	a, err := startAgent(ctx, o, "outsight agent")
	if err != nil {
		return nil, err
	}
	defer a.stop()
	progress("kernel programs: under redis-benchmark")
	idle, err := programsOf(ctx, a.command.Process.Pid)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	measured, err := run(ctx)
	if err != nil {
		return nil, err
	}
	wall := time.Since(begun)
	programs, err := programsOf(ctx, a.command.Process.Pid)
	if err != nil {
		return nil, err
	}
	share := 100 * float64(runTime(programs)-runTime(idle)) / float64(wall.Nanoseconds()) / float64(runtime.NumCPU())
	rows := []row{{what: "kernel programs together, under redis-benchmark", value: share, unit: "% of all CPUs",
		detail: fmt.Sprintf("%.0f GET/s on %d CPUs, the cost of the statistics themselves included", measured.speed,
			runtime.NumCPU())}}
	for _, p := range programs {
		if p.RunCount == 0 {
			continue
		}
		rows = append(rows, row{what: "kernel program " + p.Name, value: float64(p.RunTimeNS) / float64(p.RunCount),
			unit:   "ns per run",
			detail: fmt.Sprintf("%d runs at %.0f GET/s, statistics on", p.RunCount, measured.speed)})
	}
	return rows, nil
}

func runTime(programs []program) (ns uint64) {
	for _, p := range programs {
		ns += p.RunTimeNS
	}
	return ns
}

// programsOf lists the kernel programs that a process holds open.
func programsOf(ctx context.Context, pid int) ([]program, error) {
	ids, err := idsOf(pid, "prog_id:")
	if err != nil {
		return nil, err
	}
	out, err := output(ctx, "bpftool", "prog", "show", "-j")
	if err != nil {
		return nil, err
	}
	var all []program
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("reading the output of bpftool: %w", err)
	}
	own := slices.DeleteFunc(all, func(p program) bool { return !ids[p.ID] })
	slices.SortFunc(own, func(a, b program) int { return cmp.Compare(b.RunTimeNS, a.RunTimeNS) })
	if len(own) == 0 {
		return nil, fmt.Errorf("process %d holds no kernel program", pid)
	}
	return own, nil
}

// figuresTimer is how long the kernel's timer of a process has read figures so far, in ns.
func figuresTimer(ctx context.Context, pid int) (ns uint64, err error) {
	ids, err := idsOf(pid, "map_id:")
	if err != nil {
		return 0, err
	}
	out, err := output(ctx, "bpftool", "map", "show", "-j")
	if err != nil {
		return 0, err
	}
	var all []struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return 0, fmt.Errorf("reading the output of bpftool: %w", err)
	}
	for _, m := range all {
		if !ids[m.ID] || m.Name != figuresControl {
			continue
		}
		if out, err = output(ctx, "bpftool", "map", "dump", "id", strconv.Itoa(m.ID), "-j"); err != nil {
			return 0, err
		}
		var entries []struct {
			Formatted struct {
				Value struct {
					CostNS uint64 `json:"cost_ns"`
				} `json:"value"`
			} `json:"formatted"`
		}
		if err := json.Unmarshal(out, &entries); err != nil || len(entries) != 1 {
			return 0, fmt.Errorf("reading %d entries of map %s: %w", len(entries), m.Name, err)
		}
		return entries[0].Formatted.Value.CostNS, nil
	}
	return 0, fmt.Errorf("process %d has no map %s", pid, figuresControl)
}

// figuresControl is figures_controls of bpf/groups, as much of it as the kernel keeps.
const figuresControl = "figures_control"

// idsOf are the numbers of programs (key prog_id:) or maps (map_id:) of which a process has descriptors.
func idsOf(pid int, key string) (map[int]bool, error) {
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return nil, err
	}
	ids := map[int]bool{}
	for _, info := range infos {
		text, err := os.ReadFile(info)
		if err != nil {
			continue // closed meanwhile
		}
		if _, after, found := strings.Cut(string(text), key); found {
			var id int
			if _, err := fmt.Sscan(after, &id); err == nil {
				ids[id] = true
			}
		}
	}
	return ids, nil
}
