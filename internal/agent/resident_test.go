package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The executable's pages go; what is needed of them comes back by itself, or this would crash.
func TestStartPagesGo(t *testing.T) {
	clean, err := cleanMappings()
	if err != nil {
		t.Fatal(err)
	}
	if len(clean) == 0 {
		t.Fatal("no range of the executable is clean, want its code at least")
	}
	before := residentOfFiles(t)
	if err := unmapStartPages(); err != nil {
		t.Fatal(err)
	}
	if after := residentOfFiles(t); after >= before {
		t.Errorf("%d KiB of files resident afterwards, %d before", after, before)
	}
}

func residentOfFiles(t *testing.T) (kib uint64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscanf(after, "%d kB", &kib); err != nil {
		t.Fatalf("reading RssFile: %v", err)
	}
	return kib
}
