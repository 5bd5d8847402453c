package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRegionOptionsThatDoNotGoTogether(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("1 00112233445566778899aabbccddeeff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(o RegionOptions, want string) {
		t.Helper()
		_, _, err := o.check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	f(RegionOptions{}, "")
	f(RegionOptions{Socket: "/run/region.sock"}, "")
	f(RegionOptions{Listen: "127.0.0.1:0", KeyFile: keys, RDMA: "rxe0"}, "")
	f(RegionOptions{RDMA: "rxe0"}, "--region-rdma need --region-listen")
	f(RegionOptions{Socket: "/run/region.sock", RDMA: "rxe0"}, "--region-rdma need --region-listen")
	f(RegionOptions{Listen: "127.0.0.1:0", RDMA: "rxe0"}, "--region-listen needs --region-key-file")
	f(RegionOptions{Listen: "127.0.0.1:0", KeyFile: keys, Hook: "tcx"}, "the name of an interface")
	f(RegionOptions{Listen: "127.0.0.1:0", KeyFile: keys, Allow: "10.0.0.0"}, "--region-allow")
}
