//go:build thanos

package store

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// A Thanos that receives and one that queries it answer as the embedded store does (make test-thanos).
func TestThanosAnswersLikeTheEmbeddedStore(t *testing.T) {
	thanos := filepath.Join(t.TempDir(), "thanos")
	// Without the tag, with which its releases are built as well, it dies at the first request.
	build := exec.Command("go", "build", "-tags", "slicelabels", "-o", thanos, "github.com/thanos-io/thanos/cmd/thanos")
	build.Dir = "../../test/thanos"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building Thanos: %v\n%s", err, out)
	}
	// Labels that the receiver adds to series; the querier takes them away again.
	added := []string{"replica", "tenant_id"}
	for name, o := range map[string]RemoteOptions{
		"native": {Histograms: Native}, "both": {Histograms: Both, Protocol: Write1},
	} {
		t.Run(name, func(t *testing.T) {
			write, stored := freeAddress(t), freeAddress(t)
			startPeer(t, thanos, func(address, dir string) []string {
				return []string{"receive", "--tsdb.path=" + dir, "--http-address=" + address, "--grpc-address=" +
					stored, "--remote-write.address=" + write,
					`--label=replica="0"`, "--log.level=warn"}
			}, "/-/ready")
			o.WriteURL = "http://" + write + "/api/v1/receive"
			o.ReadURL = startPeer(t, thanos, func(address, _ string) []string {
				return []string{"query", "--http-address=" + address, "--grpc-address=" + freeAddress(t), "--endpoint=" + stored,
					"--query.replica-label=" + added[0], "--query.replica-label=" + added[1], "--log.level=warn"}
			}, "/-/ready")
			testLikeTheEmbeddedStore(t, openRemote(t, o), true, added...)
		})
	}
}
