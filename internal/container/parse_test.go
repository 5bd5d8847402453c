package container

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"

	"outsight/internal/model"
)

func testFile(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParseMemoryStat(t *testing.T) {
	check := func(file string, v2 bool, want memoryStat) {
		t.Helper()
		got, err := parseMemoryStat(testFile(t, file), v2)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", file, got, err, want)
		}
	}
	check("v1/memory.stat", false, memoryStat{rss: 57344, cache: 20979712, inactiveFile: 20971520, faults: 3133,
		limit: 67108864, hasRefaults: true})
	check("v2/memory.stat", true, memoryStat{rss: 12783616, cache: 45719552, inactiveFile: 32948224, faults: 9351,
		majorFaults: 123, fileRefaults: 4, hasRefaults: true})
	// Each version's file has not got the other's lines.
	if _, err := parseMemoryStat(testFile(t, "v2/memory.stat"), false); err == nil {
		t.Error("a v2 file passed for one of v1")
	}
}

func TestParseMemoryStatWithoutLimit(t *testing.T) {
	text := "hierarchical_memory_limit 9223372036854771712\ntotal_rss 1\ntotal_cache 2\ntotal_inactive_file " +
		"3\ntotal_pgfault 4\ntotal_pgmajfault 5\n"
	got, err := parseMemoryStat([]byte(text), false)
	if want := (memoryStat{rss: 1, cache: 2, inactiveFile: 3, faults: 4, majorFaults: 5}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func TestParseThrottle(t *testing.T) {
	check := func(file string, found bool, want model.ThrottleCounters) {
		t.Helper()
		got, ok, err := parseThrottle(testFile(t, file))
		if err != nil || ok != found || got != want {
			t.Errorf("%s: %+v, %v, %v, want %+v", file, got, ok, err, want)
		}
	}
	v2 := model.ThrottleCounters{Periods: 115, ThrottledPeriods: 37, ThrottledNS: 2211549000}
	check("v2/cpu.stat", true, v2)
	check("v2/cpu.stat.uncontrolled", false, model.ThrottleCounters{})
	check("v1/cpu.stat", true, model.ThrottleCounters{Periods: 12474, ThrottledPeriods: 12005, ThrottledNS: 534562656219})
}

func TestParseDisk(t *testing.T) {
	reads, writes, devices, err := parseBlkio(testFile(t, "v1/blkio.throttle.io_service_bytes_recursive"))
	if err != nil || reads != 4194304 || writes != 4194304 || devices != 1 {
		t.Errorf("v1 bytes: %d, %d, %d devices, %v", reads, writes, devices, err)
	}
	reads, writes, devices, err = parseBlkio(testFile(t, "v1/blkio.throttle.io_serviced_recursive"))
	if err != nil || reads != 64 || writes != 64 || devices != 1 {
		t.Errorf("v1 operations: %d, %d, %d devices, %v", reads, writes, devices, err)
	}
	if _, _, devices, err := parseBlkio([]byte("Total 0\n")); err != nil || devices != 0 {
		t.Errorf("no device: %d devices, %v", devices, err)
	}
	got, err := parseIOStat(testFile(t, "v2/io.stat"))
	want := model.DiskCounters{ReadBytes: 1459200 + 90430464 + 4096, WriteBytes: 314773504 + 299008000, Reads: 192 + 8950 +
		1, Writes: 353 + 1252}
	if err != nil || got != want {
		t.Errorf("v2: %+v, %v, want %+v", got, err, want)
	}
	if got, err := parseIOStat(nil); err != nil || got != (model.DiskCounters{}) {
		t.Errorf("no device: %+v, %v", got, err)
	}
}

func TestParseKey(t *testing.T) {
	n, found, err := parseKey(testFile(t, "v2/memory.events"), "oom_kill")
	if err != nil || !found || n != 2 {
		t.Errorf("v2: %d, %v, %v", n, found, err)
	}
	// Kernels before 4.13 do not have the line.
	if _, found, err := parseKey([]byte("oom_kill_disable 0\nunder_oom 0\n"), "oom_kill"); err != nil || found {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestParseValue(t *testing.T) {
	check := func(text string, want uint64, ok bool) {
		t.Helper()
		if got, err := parseValue([]byte(text)); got != want || (err == nil) != ok {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	check("61775872\n", 61775872, true)
	check("max\n", 0, true)
	check("18446744073709551615\n", 1<<64-1, true)
	check("18446744073709551616\n", 0, false)
	check("18446744073709551620\n", 0, false)
	check("617758", 0, false)
	check("", 0, false)
	check("\n", 0, false)
	check("-1\n", 0, false)
	check("1\n2\n", 0, false)
}

// TestCutFiles gives every prefix of every file to its parser: one that ends within a line must
// be an error, and none may be taken for the whole where numbers are missing.
func TestCutFiles(t *testing.T) {
	check := func(file string, parse func([]byte) error) {
		t.Helper()
		text := testFile(t, file)
		for i := 1; i < len(text); i++ {
			if err := parse(text[:i]); err == nil && text[i-1] != '\n' {
				t.Errorf("%s: the first %d bytes passed", file, i)
			}
		}
		if err := parse(text[:len(text)-1]); !errors.Is(err, errCut) {
			t.Errorf("%s: error %v, want %v", file, err, errCut)
		}
	}
	check("v1/memory.stat", func(b []byte) error { _, err := parseMemoryStat(b, false); return err })
	check("v2/memory.stat", func(b []byte) error { _, err := parseMemoryStat(b, true); return err })
	check("v1/memory.oom_control", func(b []byte) error { _, _, err := parseKey(b, "oom_kill"); return err })
	check("v1/cpu.stat", func(b []byte) error { _, _, err := parseThrottle(b); return err })
	check("v2/cpu.stat", func(b []byte) error { _, _, err := parseThrottle(b); return err })
	check("v1/blkio.throttle.io_service_bytes_recursive",
		func(b []byte) error { _, _, _, err := parseBlkio(b); return err })
	check("v2/io.stat", func(b []byte) error { _, err := parseIOStat(b); return err })
	check("proc/dev", func(b []byte) error { _, _, err := parseNetDev(b); return err })
	check("proc/netstat", func(b []byte) error { _, err := parseNetStat(b); return err })
}

func TestParseNetDev(t *testing.T) {
	got, _, err := parseNetDev(testFile(t, "proc/dev"))
	want := model.NetworkCounters{ReceiveBytes: 1532, ReceivePackets: 18}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	text := "Inter-|   Receive      |  Transmit\n face |bytes    packets |bytes    packets\n" +
		"    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n" +
		"  eth0: 1 2 3 4 99 99 99 99 5 6 7 8 99 99 99 99\n" +
		"eth1:10 20 30 40 99 99 99 99 50 60 70 80 99 99 99 99\n" // as long names leave no space
	got, counts, err := parseNetDev([]byte(text))
	want = model.NetworkCounters{ReceiveBytes: 11, ReceivePackets: 22, ReceiveErrors: 33, ReceiveDropped: 44,
		TransmitBytes: 55, TransmitPackets: 66, TransmitErrors: 77, TransmitDropped: 88}
	if err != nil || got != want || counts != (interfaceCounts{all: 2, used: 2}) {
		t.Errorf("%+v, %v, want %+v; interfaces %+v, want 2 that have received something", got, err, want, counts)
	}
}

func TestParseForwarded(t *testing.T) {
	if n, err := parseForwarded(testFile(t, "proc/snmp")); err != nil || n != 154 {
		t.Errorf("%d, %v, want 154", n, err)
	}
	text := testFile(t, "proc/snmp6")
	if n, err := parseForwarded6(text); err != nil || n != 0 {
		t.Errorf("%d, %v, want 0", n, err)
	}
	text = bytes.Replace(text, []byte("Ip6OutForwDatagrams             \t0"), []byte("Ip6OutForwDatagrams\t81"), 1)
	if n, err := parseForwarded6(text); err != nil || n != 81 {
		t.Errorf("%d, %v, want 81", n, err)
	}
	for _, bad := range []string{"", "Ip: ForwDatagrams", "Ip: ForwDatagrams\nIp: x\n", "Ip: Forwarding\nIp: 1\n"} {
		if n, err := parseForwarded([]byte(bad)); err == nil {
			t.Errorf("%q is %d", bad, n)
		}
	}
	for _, bad := range []string{"", "Ip6OutForwDatagrams\n", "Ip6OutForwDatagrams x\n"} {
		if n, err := parseForwarded6([]byte(bad)); err == nil {
			t.Errorf("%q is %d", bad, n)
		}
	}
}

func TestParseNetStat(t *testing.T) {
	got, err := parseNetStat(testFile(t, "proc/netstat"))
	if want := (model.TCPCounters{ZeroWindows: 51079, ZeroWindowsEnded: 51079}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	got, err = parseNetStat([]byte("IpExt: ListenOverflows\nIpExt: 9\nTcpExt: ListenOverflows x " +
		"TCPZeroWindowDrop\nTcpExt: 1 2 3\n"))
	if want := (model.TCPCounters{ListenOverflows: 1, ZeroWindowDrops: 3}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"TcpExt: ListenOverflows\nIpExt: 1\n", "TcpExt: ListenOverflows\n",
		"TcpExt: ListenOverflows\nTcpExt:\n",
		"TcpExt: ListenOverflows\nTcpExt: x\n", "IpExt: a\nIpExt: 1\n"} {
		if _, err := parseNetStat([]byte(bad)); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

func TestParseAddresses(t *testing.T) {
	check := func(got []netip.Addr, want ...string) {
		t.Helper()
		slices.SortFunc(got, netip.Addr.Compare)
		got = slices.Compact(got)
		var text []string
		for _, a := range got {
			text = append(text, a.String())
		}
		if !slices.Equal(text, want) {
			t.Errorf("%v, want %v", text, want)
		}
	}
	check(parseTrie(testFile(t, "proc/fib_trie")), "172.17.0.2")
	check(parseTrie(testFile(t, "proc/fib_trie.two")), "10.9.8.7", "10.9.8.8")
	list, err := parseInet6(testFile(t, "proc/if_inet6"))
	if err != nil {
		t.Error(err)
	}
	check(list, "2001:db8::7", "fe80::6c5a:ecff:fe23:4447", "fe80::8842:82ff:fe23:fea5")
	for _, bad := range []string{"fe80 03 40 20 c0 v0\n", "fe800000000000000000000000000zzz 03 40 20 c0 v0\n", "x\n"} {
		if _, err := parseInet6([]byte(bad)); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

func TestParseProcess(t *testing.T) {
	cgroup := testFile(t, "proc/cgroup")
	for _, subsystem := range []string{"memory", "cpu", ""} {
		path, err := parseProcCgroup(cgroup, subsystem)
		if err != nil || path != "/docker/"+idA {
			t.Errorf("%q: %q, %v", subsystem, path, err)
		}
	}
	path, err := parseProcCgroup([]byte("4:cpu,cpuacct:/a:b\n1:name=systemd:/c\n"), "cpuacct")
	if err != nil || path != "/a:b" {
		t.Errorf("%q, %v", path, err)
	}
	if _, err := parseProcCgroup(cgroup, "blk"); err == nil {
		t.Error("blk is a controller")
	}
	ticks, err := parseStartTicks(testFile(t, "proc/stat"))
	if err != nil || ticks != 100828 {
		t.Errorf("%d, %v", ticks, err)
	}
	// A process may call itself anything.
	ticks, err = parseStartTicks([]byte("7 (a) R 1 ) S 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 777 21\n"))
	if err != nil || ticks != 777 {
		t.Errorf("%d, %v", ticks, err)
	}
	n, err := parseNamespace([]byte("net:[4026531840]"))
	if err != nil || n != 4026531840 {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range []string{"", "net:[", "net:[x]", "mnt:[4026531840]", "net:[99999999999]"} {
		if _, err := parseNamespace([]byte(bad)); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

// fuzzFiles runs a parser on arbitrary text, beginning with real files: it must not panic.
func fuzzFiles(f *testing.F, parse func(t *testing.T, text []byte), files ...string) {
	for _, name := range files {
		f.Add(testFile(f, name))
	}
	f.Fuzz(parse)
}

func FuzzMemoryStat(f *testing.F) {
	fuzzFiles(f, func(t *testing.T, text []byte) {
		for _, v2 := range []bool{false, true} {
			if s, err := parseMemoryStat(text, v2); err == nil && s.limit >= unlimited {
				t.Errorf("%+v", s)
			}
		}
	}, "v1/memory.stat", "v2/memory.stat")
}

func FuzzKeys(f *testing.F) {
	fuzzFiles(f, func(t *testing.T, text []byte) {
		parseKey(text, "oom_kill")
		parseThrottle(text)
		parseValue(text)
		parseQuota(text)
		if threads, _ := parseThreads(nil, text, 3); len(threads) > 3 {
			t.Errorf("%d threads", len(threads))
		}
	}, "v1/memory.oom_control", "v2/memory.events", "v1/cpu.stat", "v2/cpu.stat", "v2/memory.max")
}

func FuzzDisk(f *testing.F) {
	fuzzFiles(f, func(t *testing.T, text []byte) {
		parseBlkio(text)
		parseIOStat(text)
	}, "v1/blkio.throttle.io_service_bytes_recursive", "v2/io.stat")
}

func FuzzPressure(f *testing.F) {
	fuzzFiles(f, func(t *testing.T, text []byte) {
		if p, err := parsePressure(text); (err == nil) != p.Known || err != nil && p != (model.Pressure{}) {
			t.Errorf("%+v, %v", p, err)
		}
	}, "v2/cpu.pressure", "v2/io.pressure")
}

func FuzzNetwork(f *testing.F) {
	fuzzFiles(f, func(t *testing.T, text []byte) {
		parseNetDev(text)
		parseForwarded(text)
		parseForwarded6(text)
		parseNetStat(text)
		parseInet6(text)
		for _, a := range parseTrie(text) {
			if !a.Is4() || a.IsLoopback() {
				t.Errorf("%v", a)
			}
		}
	}, "proc/dev", "proc/netstat", "proc/if_inet6", "proc/fib_trie", "proc/fib_trie.two", "proc/snmp", "proc/snmp6")
}

func FuzzProcess(f *testing.F) {
	fuzzFiles(f, func(t *testing.T, text []byte) {
		parseProcCgroup(text, "memory")
		parseProcCgroup(text, "")
		parseStartTicks(text)
		parseNamespace(text)
	}, "proc/cgroup", "proc/stat")
}
