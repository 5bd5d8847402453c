package store

import (
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// Version is the release of Prometheus whose storage and query language this is ("3.13.5"): clients of its API choose
// their queries by it. If the build does not have it, it is the first release with all that the API offers here.
var Version = sync.OnceValue(func() string {
	build, _ := debug.ReadBuildInfo()
	if build != nil {
		for _, d := range build.Deps {
			if d.Path == "github.com/prometheus/prometheus" {
				return release(d.Version)
			}
		}
	}
	return release("")
})

// release is the release that a module version stands for: the module v0.313.5 is release 3.13.5.
func release(module string) string {
	minor, patch, ok := strings.Cut(strings.TrimPrefix(module, "v0."), ".")
	n, err := strconv.Atoi(minor)
	if !ok || err != nil || n < 300 {
		return "3.13.0"
	}
	return strconv.Itoa(n/100) + "." + strconv.Itoa(n%100) + "." + patch
}
