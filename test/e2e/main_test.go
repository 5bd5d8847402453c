// Package e2e runs the built binary against real containers: it needs root, Docker and the Debian
// packages that scripts/install test brings. Nothing in it is simulated.
//
// Tests that ask for what their own containers do and mostly wait run beside each other, and share an `outsight up` where
// they only ask it. Those that run alone come first: storms fill the tables of whoever watches the host, and what a
// budget or a CPU is spent on is to be seen.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// outsightBinary is the product, built once from this checkout.
var outsightBinary string

// shopInstance is the first part of the names of this run's demo shop.
var shopInstance = fmt.Sprintf("e2e%d", os.Getpid())

// ownLabel marks every container and network of this run, so that only they are removed.
var ownLabel = fmt.Sprintf("outsight-e2e=%d", os.Getpid())

func TestMain(m *testing.M) {
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "the end-to-end tests load kernel programs: run them as root (make end-to-end)")
		return 1
	}
	directory, err := os.MkdirTemp("", "outsight-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	outsightBinary = filepath.Join(directory, "outsight")
	build := exec.Command("go", "build", "-o", outsightBinary, "outsight/cmd/outsight")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building outsight: %v\n%s", err, output)
		return 1
	}
	if err := importImage(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer removeOwn()
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// removeOwn removes what a failed test may have left.
func removeOwn() {
	for _, what := range []struct{ list, remove string }{
		{"ps -aq --filter label=" + ownLabel, "rm -f"},
		{"network ls -q --filter label=" + ownLabel, "network rm"},
		{"images -q " + image, "rmi -f"},
	} {
		output, _ := exec.Command("docker", strings.Fields(what.list)...).Output()
		if ids := strings.Fields(string(output)); len(ids) > 0 {
			exec.Command("docker", append(strings.Fields(what.remove), ids...)...).Run()
		}
	}
}

// patience bounds every wait. It is generous: only what is broken takes as long.
const patience = 3 * time.Minute

// eventually calls f until it returns nil, and fails the test with its last error when patience has ended.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %v: %v", patience, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
