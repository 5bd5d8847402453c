package framelog

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// TestMain fails the package where a test leaves a goroutine or a descriptor behind. With a directory in the
// environment it is the program that TestKilled kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(appenderDir); dir != "" {
		fmt.Fprintln(os.Stderr, appendUntilKilled(dir))
		os.Exit(1)
	}
	openFiles() // the runtime's own descriptors are made by the first use
	goroutines, files := runtime.NumGoroutine(), openFiles()
	code := m.Run()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= goroutines && openFiles() <= files {
			break
		}
	}
	fuzzing := flag.Lookup("test.fuzz").Value.String() != ""
	if code == 0 && !fuzzing && (runtime.NumGoroutine() > goroutines || openFiles() > files) {
		fmt.Fprintf(os.Stderr, "left behind: %d goroutines (%d before), %d descriptors (%d before)\n",
			runtime.NumGoroutine(), goroutines, openFiles(), files)
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		code = 1
	}
	os.Exit(code)
}

func openFiles() int {
	probe, err := os.Open("/dev/zero")
	if err == nil {
		probe.Close()
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
