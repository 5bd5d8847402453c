package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how late the kernel may end a sleep of the agent's threads. The Go runtime has a thread that looks
// after the others: while one of them works it sleeps for 20 µs at a time, and its waking up was a tenth of what the
// agent took. Timers of a second are no later for it: the kernel allows them a thousandth of their time anyway.
const timerSlack = time.Millisecond

// restSlack is the same of an agent that measures no network: nothing of it has to be done to the millisecond, and its
// threads wake up together.
const restSlack = 10 * time.Millisecond

// setTimerSlack sets it for all threads of this process; those to come inherit it from the threads that make them. It
// needs CAP_SYS_NICE, which is not worth giving to an agent that has not got it (deploy/): things stay as they are
// there.
func setTimerSlack(slack time.Duration) error {
	// A thread may set its own without the capability: it comes last, so that all or none have it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("listing the own threads: %w", err)
	}
	own := strconv.Itoa(unix.Gettid())
	if at, last := slices.IndexFunc(threads, func(t os.DirEntry) bool { return t.Name() == own }),
		len(threads)-1; at >= 0 {
		threads[at], threads[last] = threads[last], threads[at]
	}
	for _, thread := range threads {
		err := os.WriteFile("/proc/"+thread.Name()+"/timerslack_ns", strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // one that has ended
			return fmt.Errorf("setting the timer slack of thread %s: %w", thread.Name(), err)
		}
	}
	return nil
}
