package agent

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTimerSlackIsThatOfAllThreads(t *testing.T) {
	slackOf := func(thread string) time.Duration {
		t.Helper()
		text, err := os.ReadFile("/proc/" + thread + "/timerslack_ns")
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(ns)
	}
	before := slackOf("self")
	t.Cleanup(func() {
		if err := setTimerSlack(before); err != nil {
			t.Error(err)
		}
	})
	const slack = timerSlack + 3*time.Nanosecond
	if err := setTimerSlack(slack); err != nil {
		t.Fatal(err)
	}
	// A goroutine that ends with its thread locked takes the thread with it, so each of these has another one.
	for range 3 {
		done := make(chan string)
		go func() {
			runtime.LockOSThread()
			done <- strconv.Itoa(unix.Gettid())
			<-done
		}()
		thread := <-done
		if got := slackOf(thread); got != slack {
			t.Errorf("thread %s has a slack of %v, want %v", thread, got, slack)
		}
		close(done)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		// it may have ended
		if want := strconv.FormatInt(slack.Nanoseconds(), 10); err == nil && strings.TrimSpace(string(text)) != want {
			t.Errorf("thread %s has a slack of %s ns, want %s", thread.Name(), text, want)
		}
	}
}
