package region

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"outsight/internal/model"
)

// Source is a map of the kernel programs that is to be a region.
type Source struct {
	// Name is that of the map (docs/format/kernel.md), Record the Go type of its entries.
	Name    string
	Record  reflect.Type
	Records uint32
	// Lanes is how many entries in a row belong to one index.
	Lanes uint32
}

// use is what a collector does with a field. Its metric is the one of a column of the registry.
type use struct {
	role Role
	// column of the registry; of a server's end it is server, where that is another.
	column, server string
	// refers is a map, via a field that has the index there.
	refers, via string
	mask        uint32
	// per is how many of the field's unit are one of its metric's, where the column is no count.
	per uint64
	// text says that the bytes of the field are text.
	text bool
}

// noColumn as use.server says that the field has no metric in records of the other kind.
const noColumn = "-"

// ofDisk are the series of a container on a device, which the registry knows without their labels.
const ofDisk model.Entity = "disk"

// usage is what a map is indexed by, and what its fields are for. Other fields have no role.
type usage struct {
	index  Index
	fill   Fill
	of     model.Entity
	fields map[string]use
	// also are fields that are something else besides: they are there twice.
	also map[string]use
}

func counter(column string) use       { return use{role: RoleCounter, column: column} }
func sides(client, server string) use { return use{role: RoleCounter, column: client, server: server} }
func sum(column, refers, via string) use {
	return use{role: RoleSum, column: column, refers: refers, via: via}
}
func figure(role Role, column string, mask uint32) use {
	return use{role: role, column: column, mask: mask}
}

var (
	owner = use{role: RoleOwner}
	name  = use{role: RoleKey, text: true}
	less  = use{role: RoleLess, column: "in_flight"}
	key   = use{role: RoleKey}
	cells = usage{fields: map[string]use{"cells": {role: RoleCells}}}
)

// onDisks are the fields of disks: of the four kinds of requests, of which the first two are of synchronised files where
// the record is not of a device.
func onDisks() map[string]use {
	fields := map[string]use{"used": owner, "begun": {role: RoleGeneration}, "key.group": key, "key.device": key,
		"owner": key, "name": key}
	syncs := [...]string{"fsync", "fdatasync"}
	for i, direction := range model.DiskDirections {
		name := fmt.Sprintf("counters.%d.", i)
		of := func(row string) use {
			return use{role: RoleCounter, column: row + " " + direction, server: noColumn}
		}
		fields[name+"operations"] = of("container_disk_operations_total")
		fields[name+"bytes"] = of("container_disk_io_bytes_total")
		fields[name+"queue_ns"] = of("container_disk_queue_seconds_total")
		fields[name+"errors"] = of("container_disk_errors_total")
		fields[name+"untimed"] = of("container_disk_untimed_operations_total")
		if i >= len(syncs) {
			fields[name+"time_ns"] = of("container_disk_operation_seconds_total")
			continue
		}
		histogram := fmt.Sprintf("histograms.%d", i)
		fields[histogram] = use{role: RoleReference, refers: "disk_latency"}
		fields[name+"time_ns"] = use{role: RoleSum, column: "container_disk_io_latency_seconds " + direction,
			server: syncs[i], refers: "disk_latency", via: histogram}
	}
	return fields
}

func begun(table string) usage {
	return usage{fields: map[string]use{"count": {role: RoleBegun, refers: table},
		"entries": {role: RoleBegunRecords, refers: table}}}
}

// usages are those of the maps that are regions. A field that has several values is named with the number of each where
// they are of different metrics.
var usages = map[string]usage{
	"cgroup_slots": {index: IndexSlot, of: model.OfContainer, fields: map[string]use{"value": owner}},
	"cgroup_lanes": {index: IndexSlot, of: model.OfContainer, fields: map[string]use{
		"usage_ns": counter("cpu"), "voluntary": counter("voluntary_switches"),
		"involuntary": counter("involuntary_switches"), "polling_ns": counter("polling"), "wait_ns": sum("run_queue", "run_queue", "")}},
	"cpu_states": {index: IndexCPU},
	"processes": {index: IndexSlot, of: model.OfContainer, fields: map[string]use{
		"forks": counter("forks"), "execs": counter("execs"), "exits": counter("exits"),
		"thread_starts": counter("thread_starts")}},
	"run_queue": {index: IndexSlot, fields: cells.fields},
	"reclaim_groups": {index: IndexSlot, of: model.OfContainer, fields: map[string]use{
		"stall_ns.0": counter("reclaim_stall_limit"), "stall_ns.1": counter("reclaim_stall_host"),
		"stalls.0": counter("reclaim_stalls_limit"), "stalls.1": counter("reclaim_stalls_host")}},
	"files_of_slot": {index: IndexSlot, of: model.OfContainer, fill: FillAgent, fields: map[string]use{
		"read_bytes": counter("vfs_read_bytes"), "write_bytes": counter("vfs_write_bytes"),
		"reads": counter("vfs_reads"), "writes": counter("vfs_writes")}},
	"figures_of_group": {index: IndexFigures, of: model.OfContainer, fill: FillAgent, fields: map[string]use{
		"head": {role: RoleHead}, "tail": {role: RoleTail}, "known": {role: RoleKnown},
		"memory_bytes": figure(RoleGauge, "memory_usage", 1), "kills": figure(RoleCounter, "oom_kills", 2),
		"periods":           figure(RoleCounter, "throttle_periods", 8),
		"throttled_periods": figure(RoleCounter, "throttled_periods", 8),
		"throttled_ns":      figure(RoleCounter, "throttled", 8),
		"threads":           figure(RoleGauge, "threads", 16),
		"pressure_ns.0":     figure(RoleCounter, "pressure_io_waiting", 32),
		"pressure_ns.1":     figure(RoleCounter, "pressure_io_stalled", 32),
		"pressure_ns.2":     figure(RoleCounter, "pressure_memory_waiting", 32),
		"pressure_ns.3":     figure(RoleCounter, "pressure_memory_stalled", 32),
		"pressure_ns.4":     figure(RoleCounter, "pressure_cpu_waiting", 32),
		"pressure_ns.5":     figure(RoleCounter, "pressure_cpu_stalled", 32),
		// 0 is no limit.
		"memory_limit_bytes": figure(RoleGauge, "memory_limit", 64),
		"quota_microcores":   {role: RoleGauge, column: "cpu_quota", mask: 128, per: model.Microcores},
		"threads_limit":      figure(RoleGauge, "threads_limit", 256)}},
	"edges": {index: IndexEdge, of: model.OfEdge, fields: map[string]use{
		"used": owner, "generation": {role: RoleGeneration},
		"key.owner": key, "key.peer": key, "key.service": key, "key.client": key, "key.far": key, "key.process": key,
		"key.peer_process": key, "key.netns": key, "key.port": key, "key.far_port": key, "key.role": key,
		"key.forwarder": key, "key.transport": key, "key.others": key,
		"sent_bytes":     sides("request_bytes", "response_bytes"),
		"received_bytes": sides("response_bytes", "request_bytes"),
		"opens":          counter("connections_opened"), "closes": counter("connections_closed"),
		"failures_refused": counter("failures_refused"), "failures_timeout": counter("failures_timed_out"),
		"failures_unreachable": counter("failures_unreachable"),
		"retransmits":          counter("retransmits"), "aborts": counter("aborted"), "continued": counter("continued"),
		"bulk_transfers": counter("transfers"), "long_polls": counter("held"), "pushes": counter("pushes"),
		"resets": counter("resets"), "timeouts": counter("timed_out"), "unseen_bytes": counter("unseen_bytes"),
		"jitter_sum_ns": counter("rtt_deviation"), "window_limited_ns": counter("window_limited"),
		"send_limited_ns": counter("send_limited"), "upgrades": counter("upgrades"),
		"requests": {role: RoleGauge, column: "in_flight"}, "replies": less,
		"lost": counter("lost_transactions"), "lost_replies": counter("lost_transactions"),
		"latency_sum_ns":  sum("latency", "edge_latency", ""),
		"histograms.0":    {role: RoleReference, refers: "histogram_pool"},
		"histograms.1":    {role: RoleReference, refers: "histogram_pool"},
		"histograms.2":    {role: RoleReference, refers: "histogram_pool"},
		"ttfb_sum_ns":     sum("first_byte", "histogram_pool", "histograms.0"),
		"rtt_sum_ns":      sum("rtt", "histogram_pool", "histograms.1"),
		"duration_sum_ns": sum("duration", "histogram_pool", "histograms.2")},
		also: map[string]use{"aborts": less, "lost": less}},
	"edge_latency":   {index: IndexEdge, fields: cells.fields},
	"histogram_pool": {index: IndexPool, fields: cells.fields},
	"datagram_edges": {index: IndexEdge, of: model.OfEdge, fields: map[string]use{
		"sent_packets":     sides("request_packets", "response_packets"),
		"received_packets": sides("response_packets", "request_packets"), "one_way": counter("one_way"),
		"pending": {role: RoleDatagrams, column: "in_flight"}}},
	"packets_of_edge": {index: IndexEdge, of: model.OfEdge, fields: map[string]use{
		"counts.sent_packets":          sides("network_request_packets", "network_response_packets"),
		"counts.received_packets":      sides("network_response_packets", "network_request_packets"),
		"counts.sent_bytes":            sides("network_request_bytes", "network_response_bytes"),
		"counts.received_bytes":        sides("network_response_bytes", "network_request_bytes"),
		"counts.reordered_packets":     counter("network_reordered"),
		"counts.duplicated_packets":    counter("network_duplicated"),
		"counts.repeated_packets":      counter("network_repeated"),
		"counts.observed_packets":      counter("network_observed"),
		"counts.retransmitted_packets": counter("network_retransmitted"),
		"counts.out_of_order_packets":  counter("network_out_of_order"),
		"delay_sum_ns":                 sum("network_delay", "histogram_pool", "delay_histogram"),
		"delay_histogram":              {role: RoleReference, refers: "histogram_pool"},
		"delay_variation_ns":           counter("network_delay_variation"),
		"unread_sum_ns":                counter("network_unread"), "unread_requests": counter("network_unread_requests")}},
	"disks":        {index: IndexDisk, of: ofDisk, fields: onDisks()},
	"disk_latency": {index: IndexPool, fields: cells.fields},
	"endpoints": {index: IndexEndpoint, of: model.OfEndpoint, fields: map[string]use{
		"used": owner, "begun": {role: RoleGeneration}, "key.edge": key, "edge_generation": key, "key.protocol": key,
		"key.status": key, "key.name": name, "latency_sum_ns": sum("latency", "endpoint_latency", ""),
		"aside": counter("requests")}},
	"endpoint_latency": {index: IndexEndpoint, fields: cells.fields},
	"edges_begun":      begun("edges"),
	"disks_begun":      begun("disks"),
	"endpoints_begun":  begun("endpoints"),
}

// Columns are those columns of the registry that regions have, in order.
func Columns(of model.Entity) []string {
	var all []string
	for _, u := range usages {
		if u.of != of {
			continue
		}
		for _, one := range u.fields {
			for _, name := range []string{one.column, one.server} {
				if name != "" {
					all = append(all, name)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Describe is the list of regions of sources, in their order from FirstDataID on, with the metrics that their fields
// are. Which columns of the registry these are is in usages.
func Describe(sources []Source) (regions []Region, metrics []Metric, err error) {
	b := builder{ids: map[string]uint32{}, columns: registered(), index: map[string]int{}}
	for i, s := range sources {
		b.ids[s.Name] = uint32(FirstDataID + i)
	}
	for _, s := range sources {
		u, known := usages[s.Name]
		if !known {
			return nil, nil, fmt.Errorf("BUG: nothing says what the map %s is for", s.Name)
		}
		r := Region{Name: s.Name, ID: b.ids[s.Name], Index: u.index, Fill: u.fill, RecordBytes: uint32(s.Record.Size()),
			Records: s.Records, Lanes: s.Lanes, Generation: 1}
		if r.Fields, err = b.fields(s.Record, u); err != nil {
			return nil, nil, fmt.Errorf("describing the map %s: %w", s.Name, err)
		}
		regions = append(regions, r)
	}
	return regions, b.metrics, nil
}

type builder struct {
	ids     map[string]uint32
	columns map[model.Entity]map[string]Metric
	metrics []Metric
	// index is where a metric is among metrics, by its series.
	index map[string]int
}

// registered are the metrics of the registry by the names of their columns.
func registered() map[model.Entity]map[string]Metric {
	all := map[model.Entity]map[string]Metric{model.OfContainer: {}, model.OfEdge: {}, model.OfEndpoint: {}}
	addColumns(all[model.OfContainer], model.ContainerRows)
	addColumns(all[model.OfEdge], model.EdgeRows)
	addColumns(all[model.OfEndpoint], model.EndpointRows)
	all[ofDisk] = maps.Clone(all[model.OfContainer])
	addDisks(all[ofDisk])
	return all
}

// addDisks adds the metrics of devices by their names with the direction.
func addDisks(to map[string]Metric) {
	for i := range model.ContainerRows {
		row := &model.ContainerRows[i]
		if !slices.Equal(row.Labels, model.DeviceLabels) {
			continue
		}
		m := row.Metric(model.OfContainer)
		for _, direction := range model.DiskDirections {
			to[row.Name+" "+direction] = Metric{Name: row.Name, Unit: row.Unit, LabelName: model.DeviceLabels[1],
				LabelValue: direction, Per: uint64(m.Per())}
		}
	}
}

func addColumns[T any](to map[string]Metric, rows []model.Row[T]) {
	for i := range rows {
		for _, c := range rows[i].Columns {
			m := Metric{Name: rows[i].Name, Unit: rows[i].Unit, LabelName: c.Label.Name, LabelValue: c.Label.Value, Per: 1}
			if c.Per > 0 {
				m.Per = uint64(c.Per)
			}
			if c.Histogram != nil {
				m.Per = model.Nanoseconds
			}
			to[c.Name] = m
		}
	}
}

// fields are those of a record, nested ones named with dots, in the order of their offsets.
func (b *builder) fields(record reflect.Type, u usage) ([]Field, error) {
	all := flatten(nil, record, "", 0, u.fields)
	for name := range u.fields {
		if !slices.ContainsFunc(all, func(f Field) bool { return f.Name == name }) {
			return nil, fmt.Errorf("BUG: it has no field %s", name)
		}
	}
	for _, again := range slices.Sorted(maps.Keys(u.also)) {
		all = append(all, all[slices.IndexFunc(all, func(f Field) bool { return f.Name == again })])
	}
	for i := range all {
		as := u.fields[all[i].Name]
		if i >= len(all)-len(u.also) {
			as = u.also[all[i].Name]
		}
		if err := b.describe(&all[i], as, all, u.of); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// describe says what a field is for, which is one of all of its record.
func (b *builder) describe(f *Field, as use, all []Field, of model.Entity) error {
	f.Role, f.Mask = as.role, as.mask
	f.Refers, f.Via, f.Metric, f.ServerMetric = None, None, -1, -1
	if as.text {
		f.Type = TypeText
	}
	if as.refers != "" {
		id, known := b.ids[as.refers]
		if !known {
			return fmt.Errorf("BUG: its field %s refers to %s, which is no region", f.Name, as.refers)
		}
		f.Refers = id
	}
	if as.via != "" {
		at := slices.IndexFunc(all, func(f Field) bool { return f.Name == as.via })
		if at < 0 {
			return fmt.Errorf("BUG: it has no field %s", as.via)
		}
		f.Via = all[at].Offset
	}
	if as.column == "" {
		return nil
	}
	var err error
	if f.Metric, err = b.metric(of, as.column); err != nil {
		return err
	}
	if as.per != 0 {
		b.metrics[f.Metric].Per = as.per
	}
	f.ServerMetric = f.Metric
	switch as.server {
	case "":
	case noColumn:
		f.ServerMetric = -1
	default:
		f.ServerMetric, err = b.metric(of, as.server)
	}
	return err
}

func (b *builder) metric(of model.Entity, column string) (int, error) {
	m, known := b.columns[of][column]
	if !known {
		return 0, fmt.Errorf("BUG: the registry has no column %s of a %s", column, of)
	}
	series := m.Series()
	if at, known := b.index[series]; known {
		return at, nil
	}
	b.index[series] = len(b.metrics)
	b.metrics = append(b.metrics, m)
	return b.index[series], nil
}

// flatten lists the plain fields of a type. An array whose values are named one by one in uses is as many fields.
func flatten(all []Field, t reflect.Type, name string, offset uint32, uses map[string]use) []Field {
	one := func(kind Type, count int) []Field {
		return append(all, Field{Name: cmp.Or(name, "value"), Offset: offset, Type: kind, Count: uint16(count)})
	}
	switch t.Kind() {
	case reflect.Uint64:
		return one(TypeU64, 1)
	case reflect.Int64:
		return one(TypeS64, 1)
	case reflect.Uint32:
		return one(TypeU32, 1)
	case reflect.Uint16:
		return one(TypeU16, 1)
	case reflect.Uint8:
		return one(TypeU8, 1)
	case reflect.Array:
		e := t.Elem()
		_, apart := uses[name+".0"]
		if apart || e.Kind() == reflect.Struct {
			for i := range t.Len() {
				all = flatten(all, e, fmt.Sprintf("%s.%d", name, i), offset+uint32(i)*uint32(e.Size()), uses)
			}
			return all
		}
		if e.Kind() == reflect.Int8 {
			return one(TypeText, t.Len())
		}
		before := len(all)
		if all = flatten(all, e, name, offset, uses); len(all) > before {
			all[len(all)-1].Count = uint16(t.Len())
		}
		return all
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Name == "_" {
				continue
			}
			at, inner := offset+uint32(f.Offset), snake(f.Name)
			if inner == "bytes" && f.Type.Size() == 16 && t.Size() == 16 {
				all = append(all, Field{Name: name, Offset: at, Type: TypeAddress, Count: 1})
				continue
			}
			if name != "" {
				inner = name + "." + inner
			}
			all = flatten(all, f.Type, inner, at, uses)
		}
	}
	return all
}

// snake is the name in C of a generated Go field.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
