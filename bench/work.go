package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// workVariable makes this program the load of a measurement.
const workVariable = "OUTSIGHT_BENCH_WORK"

func init() {
	// The load's only thread is the process's first, whose switches /proc/<pid>/status counts.
	if os.Getenv(workVariable) != "" {
		runtime.LockOSThread()
	}
}

// doWork does what its argument names and returns the exit code.
func doWork(work string) int {
	var err error
	switch work {
	case "ping", "pong":
		err = pingPong(work == "ping", os.Getenv(paceVariable))
	case sinkWork:
		err = sink()
	case sourceWork:
		err = source()
	case regionWork:
		err = serveRegion()
	case scaleWork:
		err = doScale(os.Getenv(scaleVariable))
	case holdWork:
		err = hold(os.Getenv(heldVariable))
	case spinWork:
		for begun := time.Now(); time.Since(begun) < time.Hour; {
		}
	default:
		err = fmt.Errorf("there is no work %q", work)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// paceVariable is how many switches a second ping makes; empty for as many as it can.
const paceVariable = "OUTSIGHT_BENCH_PACE"

// pingPong passes a byte between two processes, from descriptor 3 to descriptor 4, until the other
// one has ended. On one CPU each round is two switches.
func pingPong(first bool, pace string) error {
	perSecond := 0.0
	if pace != "" {
		if _, err := fmt.Sscan(pace, &perSecond); err != nil {
			return err
		}
	}
	one := make([]byte, 1)
	begun := time.Now()
	for rounds := 0.0; ; rounds++ {
		if first {
			// Rounds are made in bursts, so that the sleeps add few switches to them.
			if ahead := rounds*2/max(perSecond, 1) - time.Since(begun).Seconds(); perSecond > 0 && ahead > 0.002 {
				syscall.Nanosleep(&syscall.Timespec{Nsec: int64(ahead * 1e9)}, nil)
			}
			if _, err := syscall.Write(4, one); err != nil {
				return nil
			}
		}
		if n, err := syscall.Read(3, one); n != 1 || err != nil {
			return nil
		}
		if !first {
			if _, err := syscall.Write(4, one); err != nil {
				return nil
			}
		}
	}
}
