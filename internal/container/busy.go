package container

import (
	"errors"
	"syscall"

	"outsight/internal/model"
)

const (
	// busyEvery is how many readings apart the times of a container's threads are read.
	busyEvery = 10
	// maxBusyThreads bounds the threads that are looked at, of one container, and of all in one reading: each is a
	// file to be opened. A container that finds no room in a reading has its turn in a later one.
	maxBusyThreads = 1024
	// longestThread is how long the line of a thread is.
	longestThread = len("4194304\n")
)

// readBusy finds out over how many threads the CPU time since the last such reading was spread.
// Containers take turns, so that no reading is much longer than the others.
func (f *Files) readBusy(c *model.Container, g *groupFiles) error {
	if due := (f.turn+uint64(c.Cgroup))%busyEvery == 0; !due && !g.busyDue {
		return nil
	}
	if g.busyDue = f.looked >= maxBusyThreads; g.busyDue {
		f.postponed++
		return nil
	}
	text, err := f.beginning(c, g, groupThreads, maxBusyThreads*longestThread)
	if err == nil {
		f.threads, err = parseThreads(f.threads[:0], text, maxBusyThreads)
		f.looked += len(f.threads)
	}
	switch {
	case errors.Is(err, errAbsent) || gone(err):
		return nil
	case err != nil:
		return f.failed(c, groupThreads, err)
	}
	var sum, most uint64
	before := g.ran
	g.ran = make(map[uint32]uint64, len(f.threads))
	for _, thread := range f.threads {
		ran, err := f.threadTime(int(thread))
		if err != nil {
			continue // it has ended
		}
		g.ran[thread] = ran
		// A thread that was not there before began since, but at the first reading.
		if then, known := before[thread]; before != nil && (!known || then <= ran) {
			sum += ran - then
			most = max(most, ran-then)
		}
	}
	if most > 0 {
		g.last.busy = float64(sum) / float64(most)
	}
	return nil
}

// threadTime is how long a thread was on a CPU, in ns.
func (f *Files) threadTime(thread int) (uint64, error) {
	fd, err := syscall.Open(f.proc.path(thread)+"/schedstat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	text, err := f.buffer.read(fd, "schedstat")
	if err != nil {
		return 0, err
	}
	ran, _ := word(text)
	return parseUint(ran)
}

// parseThreads appends the thread ids of a list with one in a line, at most that many.
func parseThreads(to []uint32, text []byte, most int) ([]uint32, error) {
	if len(text) == 0 {
		return to, nil // no thread
	}
	l, err := newLines(text)
	if err != nil {
		return to, err
	}
	for line, ok := l.next(); ok && len(to) < most; line, ok = l.next() {
		n, err := parseUint(line)
		if err != nil || n > 1<<22 { // the kernel's PID_MAX_LIMIT
			return to, errNumber
		}
		to = append(to, uint32(n))
	}
	return to, nil
}
