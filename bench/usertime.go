package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// samplePeriod is how much of a thread's CPU time, in ns, is between two samples of where it is.
	samplePeriod = 100_000
	// samplePages have room for 512 samples each.
	samplePages = 16
)

// whereabouts are samples of where the threads of a process were while they had a CPU: in user space or in the kernel. The
// kernel's own times of the two (utime, stime) are of its tick here, which such short work seldom meets; a timer that goes
// on with the thread's CPU time alone meets it as often as there is of it.
type whereabouts struct {
	events []int
	rings  [][]byte
}

// sampleProcess begins to sample all threads of a process, and those that they start.
func sampleProcess(pid int) (w *whereabouts, err error) {
	w = &whereabouts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return w, err
	}
	a := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Sample: samplePeriod,
		Bits: unix.PerfBitInherit}
	a.Size = uint32(unsafe.Sizeof(a))
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return w, err
		}
		for cpu := range runtime.NumCPU() { // an event that others inherit has memory for one CPU alone
			fd, err := unix.PerfEventOpen(&a, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if errors.Is(err, unix.ESRCH) {
				break // the thread has ended
			}
			if err != nil {
				return w, fmt.Errorf("sampling thread %d: %w", tid, err)
			}
			w.events = append(w.events, fd)
			ring, err := unix.Mmap(fd, 0, (1+samplePages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return w, fmt.Errorf("mapping the samples of thread %d: %w", tid, err)
			}
			w.rings = append(w.rings, ring)
		}
	}
	return w, nil
}

// read is how many samples there were, and how many of them in user space.
func (w *whereabouts) read() (user, all int, err error) {
	for _, ring := range w.rings {
		page := (*unix.PerfEventMmapPage)(unsafe.Pointer(&ring[0]))
		records := ring[os.Getpagesize():]
		head := atomic.LoadUint64(&page.Data_head)
		for at := uint64(0); at < head; {
			// struct perf_event_header: type, misc, size
			kind, misc := binary.LittleEndian.Uint32(records[at:]), binary.LittleEndian.Uint16(records[at+4:])
			size := binary.LittleEndian.Uint16(records[at+6:])
			if kind == unix.PERF_RECORD_LOST || size == 0 || at+uint64(size) > uint64(len(records))-8 {
				return 0, 0, fmt.Errorf("there is no room for all samples: %d bytes of %d", head, len(records))
			}
			if kind == unix.PERF_RECORD_SAMPLE {
				all++
				if misc&unix.PERF_RECORD_MISC_CPUMODE_MASK == unix.PERF_RECORD_MISC_USER {
					user++
				}
			}
			at += uint64(size)
		}
	}
	if all == 0 {
		return 0, 0, errors.New("the process was never sampled")
	}
	return user, all, nil
}

// share is the part of samples, in percent, and its bounds with 95 % certainty.
func share(user, all int) (part, low, high float64) {
	part = float64(user) / float64(all)
	by := 1.96 * math.Sqrt(part*(1-part)/float64(all))
	return 100 * part, 100 * (part - by), 100 * (part + by)
}

func (w *whereabouts) close() (err error) {
	for _, ring := range w.rings {
		err = errors.Join(err, unix.Munmap(ring))
	}
	for _, fd := range w.events {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}
