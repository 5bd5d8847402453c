package agent

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

func testdata(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestParseStat(t *testing.T) {
	cores, boot, err := parseStat(testdata(t, "stat"))
	if err != nil || cores != 2 || boot.Before(time.Unix(1e9, 0)) {
		t.Errorf("got %d CPUs, boot %v, error %v; want 2 CPUs and a time", cores, boot, err)
	}
	for _, bad := range []string{"", "cpu 1 2\n", "cpu0 1\nbtime x\n", "btime 5\n"} {
		if cores, boot, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: got %d CPUs and %v, want an error", bad, cores, boot)
		}
	}
}

func TestParseSteal(t *testing.T) {
	const line = "cpu  1174944 83507 459836 1117855 49569 0 14712 17686 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n"
	if ns, err := parseSteal([]byte(line)); err != nil || ns != 176_860_000_000 {
		t.Errorf("got %d ns, error %v, want 17686 hundredths of a second", ns, err)
	}
	if _, err := parseSteal(testdata(t, "stat")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2 3 4 5 6 7\n", "cpu  1 2 3 4 5 6 7 -8\n"} {
		if ns, err := parseSteal([]byte(bad)); err == nil {
			t.Errorf("%q: got %d, want an error", bad, ns)
		}
	}
}

func TestParseMeminfo(t *testing.T) {
	n, err := ParseMeminfo(testdata(t, "meminfo"))
	if err != nil || n < 1<<28 || n%1024 != 0 {
		t.Errorf("got %d bytes, error %v", n, err)
	}
	for _, bad := range []string{"", "MemFree: 3 kB\n", "MemTotal: kB\n", "MemTotal: 99999999999999999999 kB\n"} {
		if n, err := ParseMeminfo([]byte(bad)); err == nil {
			t.Errorf("%q: got %d, want an error", bad, n)
		}
	}
}

func TestReadAvailable(t *testing.T) {
	n, err := new(procFiles).readAvailable("testdata")
	if total, _ := ParseMeminfo(testdata(t, "meminfo")); err != nil || n < 1<<20 || n >= total {
		t.Errorf("got %d of %d bytes, error %v", n, total, err)
	}
	if n, err := new(procFiles).readAvailable(t.TempDir()); err == nil || n != 0 {
		t.Errorf("without a file: got %d bytes, error %v", n, err)
	}
}

func BenchmarkReadAvailable(b *testing.B) {
	var files procFiles
	defer files.close()
	for b.Loop() {
		if _, err := files.readAvailable("/proc"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestParseLoadavg(t *testing.T) {
	if n, err := parseLoadavg(testdata(t, "loadavg")); err != nil || n == 0 {
		t.Errorf("got %d threads, error %v", n, err)
	}
	if n, err := parseLoadavg([]byte("0.52 0.58 0.59 1/467 12345\n")); err != nil || n != 467 {
		t.Errorf("got %d threads, error %v, want 467", n, err)
	}
	for _, bad := range []string{"", "0.5", "1/", "1/x 3"} {
		if n, err := parseLoadavg([]byte(bad)); err == nil {
			t.Errorf("%q: got %d, want an error", bad, n)
		}
	}
}

func TestPrivileges(t *testing.T) {
	if _, err := parsePrivileges(string(testdata(t, "status"))); err != nil {
		t.Error(err)
	}
	f := func(mask string, want ...string) {
		t.Helper()
		p, err := parsePrivileges("Name:\tx\nCapEff:\t" + mask + "\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.missing(), " "); got != strings.Join(want, " ") {
			t.Errorf("%s lacks %q, want %q", mask, got, want)
		}
		if err := p.Check(); (err != nil) != (len(want) > 0) {
			t.Errorf("%s: error %v", mask, err)
		}
	}
	f("000001ffffffffff")
	f("0000000000200000") // CAP_SYS_ADMIN
	f("000000c000000000") // CAP_BPF, CAP_PERFMON
	f("0000008000000000", "CAP_PERFMON")
	f("0000004000000000", "CAP_BPF")
	f("0000000000000000", "CAP_BPF", "CAP_PERFMON")
	for mask, want := range map[string]bool{"000001ffffffffff": true, "0000000000280000": true, "0000000000200000": false,
		"000000c000080000": false} {
		if p, err := parsePrivileges("CapEff:\t" + mask + "\n"); err != nil || p.enters() != want {
			t.Errorf("%s may enter network namespaces: %v, want %v (%v)", mask, p.enters(), want, err)
		} else if f := p.Features()[2]; f.Name != EnterFeature || (f.State == model.FeatureWorks) != want || (f.Remedy == "") != want {
			t.Errorf("%s is told as %+v", mask, f)
		}
	}
	for _, bad := range []string{"", "CapEff:\tzz\n", "CapPrm:\t0\n"} {
		if p, err := parsePrivileges(bad); err == nil {
			t.Errorf("%q: got %x, want an error", bad, p)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add(testdata(f, "stat"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if cores, boot, err := parseStat(b); err == nil && (cores <= 0 || boot.IsZero()) {
			t.Errorf("%q: %d CPUs and %v without an error", b, cores, boot)
		}
	})
}

func FuzzParseMeminfo(f *testing.F) {
	f.Add(testdata(f, "meminfo"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := ParseMeminfo(b); err != nil && n != 0 {
			t.Errorf("%q: %d with error %v", b, n, err)
		}
	})
}

func FuzzParseLoadavg(f *testing.F) {
	f.Add(testdata(f, "loadavg"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := parseLoadavg(b); err != nil && n != 0 {
			t.Errorf("%q: %d with error %v", b, n, err)
		}
	})
}

func FuzzParsePrivileges(f *testing.F) {
	f.Add(string(testdata(f, "status")))
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parsePrivileges(s); err != nil && p != 0 {
			t.Errorf("%q: %x with error %v", s, p, err)
		}
	})
}

// TestHostsContainerStaysTheSame: what is made of containers need not be made again while they are the same ones.
func TestHostsContainerStaysTheSame(t *testing.T) {
	h := hostNetwork{procRoot: "/proc"}
	web := &model.Container{ID: "web", Runtime: model.Docker}
	complete := func(host *model.Container) *model.Container {
		t.Helper()
		all, err := h.complete([]*model.Container{web, host})
		if err != nil || len(all) != 2 || all[0] != web {
			t.Fatalf("%v, %v", all, err)
		}
		return all[1]
	}
	bare := &model.Container{ID: model.HostContainerID, Runtime: model.HostRuntime, Name: "one"}
	first := complete(bare)
	if first == bare || first.NetNS == 0 || bare.NetNS != 0 {
		t.Fatalf("of %+v was made %+v", bare, first)
	}
	for range addressesEvery - 2 { // before the next look
		if again := complete(bare); again != first {
			t.Fatalf("%+v, though it was %+v", again, first)
		}
	}
	renamed := *bare
	renamed.Name = "two"
	if other := complete(&renamed); other.Name != "two" || other.NetNS != first.NetNS {
		t.Errorf("of %+v was made %+v", renamed, other)
	}
	// It has other addresses at the next look.
	h.addresses = append(slices.Clone(h.addresses), netip.MustParseAddr("192.0.2.1"))
	h.reading = 0
	last := complete(&renamed)
	if slices.Contains(last.Addresses, netip.MustParseAddr("192.0.2.1")) {
		t.Errorf("addresses %v were not looked for again", last.Addresses)
	}
}
