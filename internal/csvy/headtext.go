package csvy

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Format of a recording.
type Format string

// The formats. CSVY is the superset of RAdvisor.
const (
	CSVY     Format = "csvy"
	RAdvisor Format = "radvisor"
	Parquet  Format = "parquet"
)

// layoutVersion of what the head says beyond rAdvisor's.
const layoutVersion = 1

const fence = "---"

// distributionKeys are rAdvisor's names, in its order, of the fields of os-release.
var distributionKeys = [][2]string{
	{"Id", "ID"}, {"IdLike", "ID_LIKE"}, {"Name", "NAME"}, {"PrettyName", "PRETTY_NAME"}, {"Version", "VERSION"},
	{"VersionId", "VERSION_ID"}, {"VersionCodename", "VERSION_CODENAME"}, {"CpeName", "CPE_NAME"}, {"BuildId", "BUILD_ID"},
	{"Variant", "VARIANT"}, {"VariantId", "VARIANT_ID"},
}

// AppendHead writes the head as text: the two fences, and between them YAML. cells are the columns
// of the file in order, without the time.
func AppendHead(b []byte, h *Head, format Format, cells []Column) []byte {
	provider := h.Provider
	if format == RAdvisor && provider != "kubernetes" {
		provider = "docker"
		if h.Container.PodUID != "" {
			provider = "kubernetes"
		}
	}
	collector := "cgroup_v2"
	if h.CgroupVersion == 1 {
		collector = "cgroup_v1"
	}
	list := fields{
		{"Version", radvisorVersion},
		{"Provider", optional(provider)},
		{"Metadata", h.metadata(provider)},
		{"PerfTable", fields{{"Delimiter", ","}, {"Columns", perfTable(format, cells)}}},
		{"System", h.Host.system()},
		{"CollectorType", collector},
		{"CollectorMetadata", fields{{"Cgroup", optional(h.Cgroup)}, {"CgroupDriver", optional(h.Driver)}}},
		{"PolledAt", nanoseconds(h.Polled)},
		{"InitializedAt", nanoseconds(h.Started)},
	}
	if format != RAdvisor {
		list = append(list, field{"Outsight", h.outsight()})
	}
	b = append(b, fence+"\n"...)
	b = appendYAML(b, list, 0)
	return append(b, fence+"\n"...)
}

func nanoseconds(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func timestamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}

func (h *Head) metadata(provider string) fields {
	c := &h.Container
	if provider == "kubernetes" {
		return fields{
			{"Uid", optional(c.PodUID)}, {"Name", optional(c.PodName)}, {"CreatedAt", timestamp(c.Created)},
			{"Labels", c.Labels},
			{"Namespace", optional(c.PodNamespace)}, {"NodeName", optional(h.Host.Name)}, {"HostIp", optional(c.HostIP)},
			{"Phase", optional(c.Phase)}, {"QosClass", optional(c.QOSClass)}, {"StartedAt", timestamp(c.Started)},
		}
	}
	var names []string
	if c.Name != "" {
		names = []string{"/" + c.Name}
	}
	return fields{
		{"Created", timestamp(c.Created)}, {"Command", optional(c.Command)}, {"Id", optional(c.ID)},
		{"Image", optional(c.Image)},
		{"Labels", c.Labels}, {"Names", names}, {"Ports", []string(nil)}, {"Status", optional(c.Status)},
		{"SizeRw", nil}, {"SizeRootFs", nil},
	}
}

func (h *Host) system() fields {
	distribution := fields{}
	for _, key := range distributionKeys {
		distribution = append(distribution, field{key[0], optional(h.Distribution[key[1]])})
	}
	online := h.OnlineCores
	if online == 0 {
		online = h.Cores
	}
	return fields{
		{"OsType", optional(h.System)}, {"OsRelease", optional(h.Kernel)}, {"Distribution", distribution},
		{"MemoryTotal", h.MemoryBytes >> 10}, {"SwapTotal", h.SwapBytes >> 10}, {"Hostname", optional(h.Name)},
		{"CpuCount", int64(h.Cores)}, {"CpuOnlineCount", int64(online)}, {"CpuSpeed", int64(h.MHz)},
	}
}

// perfTable declares the columns whose type is not rAdvisor's default. The superset declares all
// of its own as well, with unit, kind and source.
func perfTable(format Format, cells []Column) fields {
	list := fields{{"read", fields{{"Type", "epoch19"}}}}
	if n := vectorLength(cells); n > 0 && format != Parquet {
		list = append(list, field{perCPU, fields{{"Type", "int"}, {"Count", int64(n)}}})
	}
	if format == RAdvisor {
		return list
	}
	for _, c := range cells {
		if format == CSVY && isRAdvisors(c.Name) {
			continue
		}
		list = append(list, field{c.Name, fields{{"Type", "int"}, {"Unit", c.Unit}, {"Kind", c.Type}, {"Source", c.Source}}})
	}
	return list
}

func vectorLength(cells []Column) int {
	n := 0
	for _, c := range cells {
		if _, ok := vectorOf(c.Name); ok {
			n++
		}
	}
	return n
}

func isRAdvisors(name string) bool {
	has := func(list []Column) bool {
		return slices.ContainsFunc(list, func(c Column) bool { return c.Name == name })
	}
	_, part := vectorOf(name)
	return part || has(radvisorV2) || has(radvisorV1)
}

// outsight has what rAdvisor's head cannot hold.
func (h *Head) outsight() fields {
	c := &h.Container
	return fields{
		{"Layout", int64(layoutVersion)}, {"Version", optional(h.Version)}, {"Part", int64(max(h.Part, 1))},
		{"IntervalNs", int64(h.Interval)}, {"FileIntervalNs", int64(h.FileInterval)},
		{"StartedNs", nanoseconds(h.Started)}, {"MonotonicNs", h.MonotonicNS},
		{"ContainerId", optional(c.ID)}, {"ContainerName", optional(c.Name)}, {"Image", optional(c.Image)},
		{"Runtime", optional(c.Runtime)},
		{"PodUid", optional(c.PodUID)}, {"PodName", optional(c.PodName)}, {"PodNamespace", optional(c.PodNamespace)},
	}
}

// headText is the YAML of a head, of all versions of rAdvisor that are known and of Outsight.
type headText struct {
	Version  string `yaml:"Version"`
	Provider string `yaml:"Provider"`
	Metadata struct {
		ID        string            `yaml:"Id"`
		Image     string            `yaml:"Image"`
		Command   string            `yaml:"Command"`
		Status    string            `yaml:"Status"`
		Created   string            `yaml:"Created"`
		Labels    map[string]string `yaml:"Labels"`
		Names     []string          `yaml:"Names"`
		UID       string            `yaml:"Uid"`
		Name      string            `yaml:"Name"`
		CreatedAt string            `yaml:"CreatedAt"`
		StartedAt string            `yaml:"StartedAt"`
		Namespace string            `yaml:"Namespace"`
		Phase     string            `yaml:"Phase"`
		QosClass  string            `yaml:"QosClass"`
		HostIP    string            `yaml:"HostIp"`
	} `yaml:"Metadata"`
	PerfTable struct {
		Delimiter string                `yaml:"Delimiter"`
		Columns   map[string]columnText `yaml:"Columns"`
	} `yaml:"PerfTable"`
	System struct {
		OsType       string            `yaml:"OsType"`
		OsRelease    string            `yaml:"OsRelease"`
		Hostname     string            `yaml:"Hostname"`
		Distribution map[string]string `yaml:"Distribution"`
		MemoryTotal  uint64            `yaml:"MemoryTotal"`
		SwapTotal    uint64            `yaml:"SwapTotal"`
		CPUCount     int               `yaml:"CpuCount"`
		CPUOnline    int               `yaml:"CpuOnlineCount"`
		CPUSpeed     int               `yaml:"CpuSpeed"`
	} `yaml:"System"`
	CollectorType     string `yaml:"CollectorType"`
	CollectorMetadata struct {
		Cgroup       string `yaml:"Cgroup"`
		CgroupDriver string `yaml:"CgroupDriver"`
	} `yaml:"CollectorMetadata"`
	// Before 1.3 these two were at the top.
	Cgroup        string `yaml:"Cgroup"`
	CgroupDriver  string `yaml:"CgroupDriver"`
	PolledAt      int64  `yaml:"PolledAt"`
	InitializedAt int64  `yaml:"InitializedAt"`
	Outsight      *struct {
		Layout        int    `yaml:"Layout"`
		Version       string `yaml:"Version"`
		Part          int    `yaml:"Part"`
		Interval      int64  `yaml:"IntervalNs"`
		FileInterval  int64  `yaml:"FileIntervalNs"`
		Started       int64  `yaml:"StartedNs"`
		Monotonic     uint64 `yaml:"MonotonicNs"`
		ContainerID   string `yaml:"ContainerId"`
		ContainerName string `yaml:"ContainerName"`
		Image         string `yaml:"Image"`
		Runtime       string `yaml:"Runtime"`
		PodUID        string `yaml:"PodUid"`
		PodName       string `yaml:"PodName"`
		PodNamespace  string `yaml:"PodNamespace"`
	} `yaml:"Outsight"`
}

type columnText struct {
	Type   string `yaml:"Type"`
	Unit   string `yaml:"Unit"`
	Kind   string `yaml:"Kind"`
	Source string `yaml:"Source"`
	Count  int    `yaml:"Count"`
}

// parsedHead is a head without the order of its columns, which the CSV's first row tells.
type parsedHead struct {
	Head
	format    Format
	delimiter byte
	declared  map[string]columnText
}

// column describes a column of the file: as it is declared, else as it is known.
func (p *parsedHead) column(name string) Column {
	c := ColumnNamed(name)
	d := p.declared[name]
	set := func(to *string, value string) {
		if value != "" {
			*to = value
		}
	}
	set(&c.Unit, d.Unit)
	set(&c.Type, d.Kind)
	set(&c.Source, d.Source)
	return c
}

// ParseFencedHead reads a head with its fences, as AppendHead writes it. Its columns are those that
// are declared, in no order.
func ParseFencedHead(text []byte) (*Head, error) {
	text, _ = bytes.CutPrefix(text, []byte(fence+"\n"))
	text, _ = bytes.CutSuffix(text, []byte(fence+"\n"))
	p, err := parseHead(text)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(p.declared)) {
		if name != "read" && name != perCPU {
			p.Columns = append(p.Columns, p.column(name))
		}
	}
	return &p.Head, nil
}

func parseHead(text []byte) (*parsedHead, error) {
	var t headText
	if err := yaml.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("reading the head: %w", err)
	}
	if t.CollectorType == "" && t.Outsight == nil && t.Cgroup == "" {
		return nil, fmt.Errorf("reading the head: it names neither a collector nor a control group: not a recording")
	}
	p := &parsedHead{format: RAdvisor, delimiter: ',', declared: t.PerfTable.Columns}
	switch d := t.PerfTable.Delimiter; len(d) {
	case 0:
	case 1:
		p.delimiter = d[0]
	default:
		return nil, fmt.Errorf("reading the head: the delimiter is %q, want one byte", d)
	}
	h := &p.Head
	h.Version, h.Provider = t.Version, t.Provider
	h.CgroupVersion = 2
	if t.CollectorType == "cgroup_v1" || t.CollectorType == "" && t.Outsight == nil {
		h.CgroupVersion = 1
	}
	h.Cgroup, h.Driver = t.CollectorMetadata.Cgroup, t.CollectorMetadata.CgroupDriver
	if h.Cgroup == "" {
		h.Cgroup, h.Driver = t.Cgroup, t.CgroupDriver
	}
	h.Polled, h.Started = fromNanoseconds(t.PolledAt), fromNanoseconds(t.InitializedAt)
	h.Part = 1
	m := &t.Metadata
	c := &h.Container
	c.ID, c.Image, c.Command, c.Status, c.Labels = m.ID, m.Image, m.Command, m.Status, m.Labels
	if len(m.Names) > 0 {
		c.Name = strings.TrimPrefix(m.Names[0], "/")
	}
	c.PodUID, c.PodName, c.PodNamespace, c.Phase, c.QOSClass, c.HostIP = m.UID, m.Name, m.Namespace, m.Phase, m.QosClass,
		m.HostIP
	c.Created, c.Started = fromTimestamp(m.Created, m.CreatedAt), fromTimestamp(m.StartedAt)
	s := &t.System
	h.Host = Host{
		Name: s.Hostname, System: s.OsType, Kernel: s.OsRelease, Cores: s.CPUCount, OnlineCores: s.CPUOnline, MHz: s.CPUSpeed,
		MemoryBytes: bytesOf(s.MemoryTotal), SwapBytes: bytesOf(s.SwapTotal),
	}
	for _, key := range distributionKeys {
		if v := s.Distribution[key[0]]; v != "" {
			if h.Host.Distribution == nil {
				h.Host.Distribution = map[string]string{}
			}
			h.Host.Distribution[key[1]] = v
		}
	}
	if o := t.Outsight; o != nil {
		if o.Layout > layoutVersion {
			return nil, fmt.Errorf("reading the head: its layout is version %d, and this program knows %d", o.Layout,
				layoutVersion)
		}
		p.format = CSVY
		h.Version, h.Part = o.Version, max(o.Part, 1)
		h.Interval, h.FileInterval = time.Duration(o.Interval), time.Duration(o.FileInterval)
		h.Started, h.MonotonicNS = fromNanoseconds(o.Started), o.Monotonic
		c.ID, c.Name, c.Runtime = o.ContainerID, o.ContainerName, o.Runtime
		if o.Image != "" {
			c.Image = o.Image
		}
		c.PodUID, c.PodName, c.PodNamespace = o.PodUID, o.PodName, o.PodNamespace
	}
	return p, nil
}

// bytesOf is a number of kB in bytes, as many as there can be.
func bytesOf(kibibytes uint64) uint64 { return min(kibibytes, math.MaxUint64>>10) << 10 }

func fromNanoseconds(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

func fromTimestamp(texts ...string) time.Time {
	for _, text := range texts {
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			return t
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return time.Unix(n, 0)
		}
	}
	return time.Time{}
}
