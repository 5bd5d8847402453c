// Package imports keeps the import table of ARCHITECTURE.md true.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "outsight/"

// allowed says which packages of the module a package may import, and why. A package that is not
// in it fails the test: whoever adds one decides here where it belongs.
var allowed = map[string]map[string]string{
	"internal/model":     {},
	"internal/monotonic": {},
	"internal/frame":     {"internal/model": "columns are those of the registry"},
	"internal/framelog": {
		"internal/frame":   "what it keeps",
		"internal/model":   "histograms and names of columns",
		"internal/damaged": "what is cut off is kept there",
	},
	"internal/framelog/s3": {"internal/framelog": "the bucket that it implements"},
	"internal/framelog/clickhouse": {
		"internal/framelog": "the log that it implements", "internal/frame": "rows in and out",
	},
	"internal/framelog/parquet": {
		"internal/framelog": "what it is read from", "internal/frame": "frames in",
		"internal/model": "the names of roles and transports",
	},
	"internal/kernel": {
		"internal/model":        "counters leave the kernel side as values of the model",
		"internal/kernel/host":  "modules are opened by it",
		"internal/kernel/sched": "one of the modules", "internal/kernel/net": "one of the modules",
		"internal/kernel/block": "one of the modules", "internal/kernel/tick": "one of the modules",
		"internal/kernel/forward": "one of the modules", "internal/kernel/groups": "one of the modules",
	},
	"internal/kernel/host": {"internal/model": "features, parts and histograms are values of the model"},
	"internal/kernel/sched": {
		"internal/monotonic": "the clock of the kernel's programs",
		"internal/model":     "counters out", "internal/kernel/host": "what all modules need",
		"internal/topology": "which hardware threads share a core, and which CPUs are on line",
	},
	"internal/kernel/net": {"internal/model": "counters out", "internal/kernel/host": "what all modules need",
		"internal/monotonic": "the clock of the kernel's programs",
		"internal/netns":     "which interfaces are the host's uplinks"},
	"internal/kernel/block": {"internal/model": "counters out", "internal/kernel/host": "what all modules need",
		"internal/monotonic": "the clock of the kernel's programs"},
	"internal/kernel/tick": {"internal/model": "ticks out", "internal/kernel/host": "what all modules need",
		"internal/monotonic": "the clock of the kernel's programs"},
	"internal/kernel/groups": {"internal/model": "figures out", "internal/kernel/host": "what all modules need"},
	"internal/kernel/forward": {
		"internal/model": "counters out", "internal/kernel/host": "what all modules need",
		"internal/netns": "it attaches in the namespaces of containers",
	},
	"internal/kernel/region": {
		"internal/kernel/host": "what all modules need", "internal/region/readwire": "keys, and the sizes of packets",
		"internal/model": "what it costs is a value of the model",
	},
	"internal/region/readwire":  {"internal/region": "the reader that it implements"},
	"internal/netns":            {},
	"internal/bridge":           {"internal/netns": "it makes the namespaces"},
	"internal/topology":         {},
	"internal/clocks":           {},
	"internal/clocks/simulated": {"internal/clocks": "the packets that it makes"},
	"internal/access":           {"internal/otlp": "the header that names a tenant", "internal/model": "what was refused"},
	"internal/energy": {
		"internal/model":    "CPU time and weighted cycles in, energy out",
		"internal/topology": "lists of CPUs in sysfs",
	},
	"internal/container": {
		"internal/model": "identities are values of the model",
		"internal/netns": "other ends of containers' interfaces tell whether these have counted anything",
	},
	"sdk/go": {},
	"internal/appmetrics": {
		"internal/model": "metrics are values of the model",
	},
	"internal/network": {
		"internal/model":     "kernel edges in, edges out",
		"internal/container": "owners of edges are containers",
		"internal/kernel":    "edges come from the kernel's table",
	},
	"internal/otlp": {
		"internal/model": "one table of names for the model's numbers",
		"internal/frame": "frames become series",
	},
	"internal/kubernetes": {
		"internal/model": "series in and out",
		"internal/otlp":  "the names of labels",
	},
	"internal/agent": {
		"internal/monotonic":  "the clock of the kernel's programs",
		"internal/model":      "snapshots",
		"internal/frame":      "which leave it as frames",
		"internal/kernel":     "the kernel's counters are its source",
		"internal/container":  "who the counters belong to",
		"internal/appmetrics": "what applications count themselves",
		"internal/network":    "who talks to whom",
		"internal/otlp":       "frames leave it as named series",
		"internal/recorder":   "the flight recorder runs in it",
		"internal/budget":     "what it gives up to keep its budget",
		"internal/hostclock":  "how far the clock is off that snapshots are told by",
		"internal/disks":      "what containers did on disks",
		"internal/energy":     "what the host draws is divided among containers",
		"internal/access":     "who may read /metrics",
		"internal/region":     "control region and dictionary", "internal/region/shm": "readers on this host",
		"internal/region/tcp": "readers on others", "internal/region/rdma": "those whom a network card answers",
		"internal/kernel/region":   "and those to whom the kernel answers",
		"internal/region/readwire": "with keys of packets",
	},
	"internal/region": {"internal/model": "metrics of the registry, histograms",
		"internal/appmetrics": "what a value of an application is, and how its metrics may be called"},
	"internal/region/shm": {"internal/region": "the reader that it implements", "internal/model": "what was refused",
		"internal/appmetrics": "that the size of an application's file is sealed"},
	"internal/region/credit": {"internal/region": "the reader that it bounds"},
	"internal/disks":         {"internal/model": "entries of the kernel's table in, devices of containers out"},
	"internal/pull": {
		"internal/disks": "what containers did on disks",
		"internal/model": "what is read becomes its values", "internal/frame": "frames out", "internal/network": "edges with owners",
		"internal/region": "what is read", "internal/region/credit": "how much at a time",
		"internal/region/readwire": "one of the transports", "internal/region/tcp": "one of the transports",
		"internal/region/rdma": "one of the transports",
	},
	"internal/region/rdma": {"internal/region": "the reader that it implements", "internal/region/tcp": "asks for connections",
		"internal/model": "who was refused"},
	"internal/region/tcp": {"internal/region": "the reader that it implements", "internal/model": "what was refused"},
	"internal/budget":     {},
	"internal/hostclock":  {"internal/model": "what was read, and for how long it counts"},
	"internal/recorder": {
		"internal/model":     "ticks in, containers beside them",
		"internal/csvy":      "rows out: the names of columns, and the heads of files",
		"internal/monotonic": "the clock of the kernel's programs",
	},
	"internal/quota":   {},
	"internal/damaged": {},
	"internal/store": {
		"internal/model":   "series in, query results out",
		"internal/quota":   "what each tenant may have of it",
		"internal/damaged": "what is cut off is kept there",
	},
	"internal/queue": {},
	"internal/stamp": {},
	"internal/control": {
		"internal/frame": "addresses are those of frames",
		"internal/model": "its bounds are the model's",
	},
	"internal/probe": {
		"internal/control":   "what a server wants to be measured",
		"internal/frame":     "which host this is",
		"internal/access":    "files of keys are checked as those of tokens",
		"internal/stamp":     "sessions are of STAMP",
		"internal/netns":     "sockets are made in the namespaces of containers",
		"internal/clocks":    "other hosts have other ones",
		"internal/hostclock": "how far this host's is off",
		"internal/container": "places are containers",
		"internal/model":     "which are values of the model",
	},
	"internal/export": {
		"internal/model":   "snapshots in",
		"internal/frame":   "frames out",
		"internal/otlp":    "requests out",
		"internal/control": "agents ask with its credentials",
		"internal/damaged": "damaged files of the spool are kept there",
	},
	"internal/ingest": {
		"internal/model":    "series out",
		"internal/frame":    "frames of agents in",
		"internal/framelog": "where they are kept",
		"internal/otlp":     "the names of the protocol's headers and of what agents send",
		"internal/queue":    "what was taken waits there",
		"internal/store":    "what its errors mean",
		"internal/quota":    "what each tenant may send",
		"internal/access":   "which tenant a header names",
		"internal/damaged":  "damaged blocks of the queue are kept there",
	},
	"internal/derive": {
		"internal/frame": "frames in",
		"internal/model": "series out",
		"internal/otlp":  "what the series of a frame are",
		"internal/store": "what its errors mean",
	},
	"internal/csvy": {},
	"internal/csvy/parquet": {
		"internal/csvy": "it adds a format there; it is apart so that the small agent does not link it",
	},
	"internal/predict": {
		"internal/graph": "it learns from the analysis of the past",
	},
	"internal/graph": {
		"internal/model":  "the registry says what is shown",
		"internal/frame":  "two of each host are a window",
		"internal/clocks": "hosts have clocks of their own",
	},
	"internal/fleet": {
		"internal/model": "the registry says what hosts have",
		"internal/frame": "two of each host are a window",
	},
	"internal/place": {
		"internal/model": "what kinds of containers there are",
		"internal/frame": "uses of each minute are of frames",
		"internal/graph": "who talks to whom",
		"internal/fleet": "what hosts have",
	},
	"internal/report": {
		"internal/csvy":  "recordings in",
		"internal/model": "anomalies out",
	},
	"internal/api": {
		"internal/access":   "who may ask",
		"internal/frame":    "windows are of frames",
		"internal/framelog": "where they are kept",
		"internal/model":    "snapshots and results",
		"internal/store":    "PromQL, and slots for what takes long",
		"internal/graph":    "the service map",
		"internal/predict":  "what would be if more came",
		"internal/fleet":    "how hosts and their agents do",
		"internal/place":    "where containers would better run",
		"internal/otlp":     "queries name the stored metrics, whose table is there",
		"internal/recorder": "the flight recorder's ticks of the last minutes",
		"internal/csvy":     "they become recordings in memory, whose columns have names",
		"internal/report":   "what recordings show: saturations, and what waited",
		"web":               "the page's assets",
	},
	"web": {},
	"internal/demo": {
		"internal/model":  "the shop's true edges are checked against the model's",
		"internal/bridge": "the network of parts that no container runtime runs",
	},
	"cmd/outsight": {
		"internal/frame": "", "internal/framelog": "", "internal/framelog/s3": "", "internal/framelog/parquet": "",
		"internal/framelog/clickhouse": "",
		"internal/derive":              "",
		"internal/model":               "", "internal/kernel": "", "internal/container": "", "internal/network": "",
		"internal/otlp": "", "internal/agent": "", "internal/store": "", "internal/graph": "", "internal/fleet": "", "internal/place": "",
		"internal/api": "", "internal/demo": "", "web": "",
		"internal/queue": "", "internal/ingest": "", "internal/export": "",
		"internal/recorder": "", "internal/csvy": "", "internal/csvy/parquet": "", "internal/report": "",
		"internal/kubernetes": "", "internal/budget": "", "internal/energy": "", "internal/access": "", "internal/hostclock": "",
		"internal/quota": "", "internal/probe": "", "internal/stamp": "", "internal/control": "", "internal/predict": "",
		"internal/region": "", "internal/region/shm": "", "internal/region/tcp": "", "internal/region/credit": "",
		"internal/pull": "",
	},
	"cmd/outsight-agent": {
		"internal/frame": "",
		"internal/model": "", "internal/kernel": "", "internal/container": "", "internal/network": "",
		"internal/otlp": "", "internal/agent": "",
		"internal/energy":     "HT ratios are a flag",
		"internal/export":     "sending to a server",
		"internal/kubernetes": "names of its own node's pods: plain requests, no client library",
		"internal/recorder":   "how anomalies are kept", "internal/report": "how they are found",
		"internal/budget": "what its flag says", "internal/hostclock": "so, too",
		"internal/access": "who may read /metrics",
		"internal/probe":  "the network to other hosts is measured in it",
	},
}

// soleImporter names, for a prefix of foreign packages, the one package that may import them, so
// that their types spread no further. With a slash at its end it is a package and those below it.
// A second one stands behind a comma.
var soleImporter = map[string]string{
	"github.com/cilium/ebpf": "internal/kernel/",
	"github.com/prometheus/": "internal/store",
	// Recordings are written piece by piece by a format of csvy, frames as whole files that nothing of ours reads.
	"github.com/parquet-go/":     "internal/csvy/parquet,internal/framelog/parquet",
	"github.com/minio/minio-go/": "internal/framelog/s3",
	// The server and its configuration stay where it is embedded; clients use nats.go.
	"github.com/nats-io/nats-server": "internal/ingest",
	// A library of names alone, which the store need not know.
	"github.com/prometheus/otlptranslator": "internal/ingest",
}

// importerOf is the one package that may import a foreign one, by the longest prefix; empty for any.
func importerOf(imported string) (importer string) {
	longest := 0
	for prefix, name := range soleImporter {
		if len(prefix) > longest && strings.HasPrefix(imported, prefix) {
			longest, importer = len(prefix), name
		}
	}
	return importer
}

// notLinked lists what a binary must not contain, however indirectly.
var notLinked = map[string][]string{
	"cmd/outsight-agent": {"github.com/prometheus/", "github.com/nats-io/nats-server", "k8s.io/",
		"github.com/parquet-go/", "github.com/minio/minio-go/"},
}

// tools are programs of the repository that are in no product: they may import anything.
var tools = []string{"bench", "test/", "internal/kernel/cells", "internal/kernel/kerneltest",
	"internal/kernel/parsertest", "internal/kernel/tables"}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

func list(t *testing.T, arguments ...string) []goPackage {
	t.Helper()
	command := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,Standard"}, arguments...)...)
	command.Dir = "../.."
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", arguments, err, stderr.Bytes())
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("reading the output of go list: %v", err)
		}
		packages = append(packages, p)
	}
}

func isTool(name string) bool {
	return slices.ContainsFunc(tools, func(tool string) bool {
		return name == tool || strings.HasPrefix(name, strings.TrimSuffix(tool, "/")+"/")
	})
}

func TestPackagesImportOnlyWhatTheTableAllows(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module)
		seen[name] = true
		if isTool(name) {
			continue
		}
		may, known := allowed[name]
		if !known {
			t.Errorf("package %s is not in the import table", name)
			continue
		}
		for _, imported := range p.Imports {
			ours, isOurs := strings.CutPrefix(imported, module)
			if _, ok := may[ours]; isOurs && !ok {
				t.Errorf("package %s imports %s, which the table does not allow", name, ours)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if !seen[name] {
			t.Errorf("package %s is in the import table and does not exist", name)
		}
	}
}

func isOf(name, importers string) bool {
	for importer := range strings.SplitSeq(importers, ",") {
		if name == strings.TrimSuffix(importer, "/") || strings.HasSuffix(importer, "/") && strings.HasPrefix(name, importer) {
			return true
		}
	}
	return false
}

func TestForeignPackagesHaveOneImporter(t *testing.T) {
	for _, p := range list(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module)
		if isTool(name) {
			continue
		}
		for _, imported := range p.Imports {
			if importer := importerOf(imported); importer != "" && !isOf(name, importer) {
				t.Errorf("package %s imports %s, which only %s may", name, imported, importer)
			}
		}
	}
}

func TestBinariesLinkNothingForbidden(t *testing.T) {
	for binary, prefixes := range notLinked {
		for _, p := range list(t, "./"+binary) {
			if len(p.Deps) == 0 {
				t.Fatalf("go list names no dependencies of %s", binary)
			}
			for _, dependency := range p.Deps {
				for _, prefix := range prefixes {
					if strings.HasPrefix(dependency, prefix) {
						t.Errorf("%s links %s", binary, dependency)
					}
				}
			}
		}
	}
}
