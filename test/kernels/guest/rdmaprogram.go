package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"outsight/internal/region"
)

// jobsDone is what the C program of internal/appmetrics counts, as a series.
const jobsDone = "app_jobs_done_total"

// program is a running C program that counts as fast as it can.
type program struct {
	*exec.Cmd
	in io.Closer
}

// startProgram starts it, and waits until its counter is read by RDMA.
func startProgram(readings *bufio.Reader) (*program, error) {
	p := &program{Cmd: exec.Command("/worker", "spin")}
	in, err := p.StdinPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		return nil, err
	}
	p.in = in
	for end := time.Now().Add(startLimit); ; {
		r, err := nextReading(readings)
		for _, c := range r.Containers {
			if c.Applications[jobsDone] > 0 {
				return p, nil
			}
		}
		if err != nil || time.Now().After(end) {
			return nil, errors.Join(err, fmt.Errorf("the program counts, and outsight collect says %+v", r), p.end())
		}
	}
}

func (p *program) end() error {
	err := errors.Join(p.in.Close(), p.Process.Kill())
	_ = p.Wait() // it was killed
	return err
}

// jobsOf is the counter as a reader has it.
func jobsOf(ctx context.Context, c *region.Collector) (uint64, error) {
	s, err := c.Collect(ctx)
	if err != nil || s.ApplicationsError != nil {
		return 0, errors.Join(err, s.ApplicationsError)
	}
	for _, m := range s.Applications {
		if m.Name == jobsDone {
			return m.Count, nil
		}
	}
	return 0, fmt.Errorf("%s is not there among %d metrics", jobsDone, len(s.Applications))
}

// compare reads the program's counter by RDMA: it is what it was at that time, and equal when the program is stopped. A write
// to the program's memory is refused.
func (p *program) compare(ctx context.Context, near, far, writer region.Reader) (string, error) {
	first, here, there := uint64(0), region.NewCollector(near), region.NewCollector(far)
	last := time.Now()
	for rounds := 0; rounds < 5; {
		var counts [3]uint64
		for i, reader := range []*region.Collector{here, there, here} {
			n, err := jobsOf(ctx, reader)
			if err != nil {
				return "", err
			}
			counts[i] = n
		}
		standsStill := counts[1] == first // it need not have had a CPU since
		if counts[0] > counts[1] || counts[1] > counts[2] || counts[1] < first || standsStill && time.Since(last) > rdmaSettled {
			return "", fmt.Errorf("its counter is %d, by RDMA %d, then %d; before %d", counts[0], counts[1], counts[2], first)
		}
		if !standsStill {
			first, last = counts[1], time.Now()
			rounds++
		}
	}
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	var one, two uint64
	for end := time.Now().Add(rdmaSettled); ; { // until it has stopped
		before, err1 := jobsOf(ctx, here)
		far, err2 := jobsOf(ctx, there)
		after, err3 := jobsOf(ctx, here)
		if err := errors.Join(err1, err2, err3); err != nil {
			return "", err
		}
		if one, two = before, far; before == after || time.Now().After(end) {
			break
		}
	}
	if one != two {
		return "", fmt.Errorf("it is stopped at %d, by RDMA at %d", one, two)
	}
	return fmt.Sprintf("a C program's counter by RDMA: %d, as it counted", two), writeToProgram(ctx, near, writer)
}

// writeToProgram has a reader that writes where it should read.
func writeToProgram(ctx context.Context, near, writer region.Reader) error {
	control, err := region.ReadControl(ctx, near)
	if err != nil {
		return err
	}
	for _, r := range control.Regions {
		if r.Index != region.IndexApplications {
			continue
		}
		list, err := region.ReadApplications(ctx, near, r.ID)
		if err != nil {
			return err
		}
		if len(list.Files) != 1 || list.Files[0].Address == 0 {
			return fmt.Errorf("the list has %+v, want one file with an address", list.Files)
		}
		f := &list.Files[0]
		at := uint64(f.Values[0].Offset)
		before, after := make([]byte, 8), make([]byte, 8)
		if err := near.Read(ctx, f.ID, at, before); err != nil {
			return err
		}
		if err := writer.(region.FileMapper).MapFiles(ctx, list.Files); err != nil {
			return err
		}
		if err := writer.Read(ctx, f.ID, at, make([]byte, 8)); !errors.Is(err, region.ErrRefused) {
			return fmt.Errorf("a write to its memory: %w", err)
		}
		if err := near.Read(ctx, f.ID, at, after); err != nil {
			return err
		}
		if was, now := binary.LittleEndian.Uint64(before), binary.LittleEndian.Uint64(after); was != now {
			return fmt.Errorf("a write that was refused has changed its memory from %d to %d", was, now)
		}
		return nil
	}
	return errors.New("the control region has no list of applications")
}
