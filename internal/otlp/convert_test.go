package otlp

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/otlptranslator"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// render is a series as a line, for comparison.
func render(s model.Series) string {
	var b strings.Builder
	b.WriteString(s.Name)
	for _, l := range s.Labels {
		b.WriteString("," + l.Name + "=" + l.Value)
	}
	return b.String()
}

func values(t *testing.T, series []model.Series) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, s := range series {
		if _, twice := out[render(s)]; twice {
			t.Errorf("%s: twice", render(s))
		}
		if s.Histogram != nil {
			out[render(s)] = float64(s.Histogram.Count)
		} else {
			out[render(s)] = s.Value
		}
	}
	return out
}

func TestConvertValues(t *testing.T) {
	got := values(t, FromFrame(frame.Of(testSnapshot()), SeriesOptions{}))
	f := func(series string, want float64) {
		t.Helper()
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s: got %v (there: %t), want %v", series, v, ok, want)
		}
		delete(got, series)
	}
	name := strings.ToValidUTF8(hostile, "\uFFFD")
	web := func(metric string, want float64) {
		t.Helper()
		f(metric+",host=node-1,id=4f1d,image=registry/web:1,name="+name+",runtime=docker", want)
	}
	webType := func(metric, kind string, want float64) {
		t.Helper()
		f(metric+",host=node-1,id=4f1d,image=registry/web:1,name="+name+",runtime=docker,type="+kind, want)
	}
	web("container_info", 1)
	f("container_oom_victims_total,host=node-1,id=4f1d,image=registry/web:1,name="+name+",process=java,runtime=docker", 63)
	for metric, want := range map[string][2]float64{"cpu": {57, 58}, "memory": {59, 60}, "io": {61, 62}} {
		web("container_pressure_"+metric+"_waiting_seconds_total", want[0])
		web("container_pressure_"+metric+"_stalled_seconds_total", want[1])
	}
	webType("container_memory_refaults_total", "anon", 51)
	webType("container_memory_refaults_total", "file", 52)
	webType("container_memory_reclaim_stall_seconds_total", "limit", 53)
	webType("container_memory_reclaim_stalls_total", "limit", 54)
	webType("container_memory_reclaim_stall_seconds_total", "host", 55)
	webType("container_memory_reclaim_stalls_total", "host", 56)
	for by, want := range map[string][2]float64{"by_name=own": {1, 6}, "by_name=idle": {2, 0}, "by_name=quota": {3, 8},
		"by_name=migrated": {4, 0}, "by_name=other": {5, 7}, "by_id=77aa,by_name=db": {9, 10}} {
		web("container_run_queue_wait_by_seconds_total,"+by, want[0])
		if want[1] > 0 {
			web("container_preemptions_by_total,"+by, want[1])
		}
	}
	web("container_start_time_seconds", float64(testTime.Add(-time.Minute).UnixMilli())/1e3)
	web("container_cpu_usage_seconds_total", 1.5)
	webType("container_context_switches_total", "voluntary", 7)
	webType("container_context_switches_total", "involuntary", 8)
	web("container_run_queue_latency_seconds", float64(testHistogram().Count))
	web("container_process_forks_total", 1)
	web("container_process_execs_total", 2)
	web("container_process_exits_total", 3)
	web("container_threads", 4)
	web("container_threads_limit", 64)
	web("container_open_files", 9)
	web("container_open_files_limit", 1024)
	web("container_busy_threads", 1.5)
	web("container_cpu_quota_cores", 0.5)
	web("container_cpu_cfs_periods_total", 10)
	web("container_cpu_cfs_throttled_periods_total", 5)
	web("container_cpu_cfs_throttled_seconds_total", 0.25)
	web("container_memory_usage_bytes", 11)
	web("container_memory_working_set_bytes", 12)
	web("container_memory_rss", 13)
	web("container_memory_cache", 14)
	web("container_spec_memory_limit_bytes", 15)
	webType("container_memory_page_faults_total", "minor", 10)
	webType("container_memory_page_faults_total", "major", 6)
	web("container_oom_kills_total", 1)
	web("container_fs_reads_bytes_total", 21)
	web("container_fs_writes_bytes_total", 22)
	web("container_fs_reads_total", 23)
	web("container_fs_writes_total", 24)
	webDevice := func(metric, device, direction string, want float64) {
		t.Helper()
		f(metric+",device="+device+",direction="+direction+",host=node-1,id=4f1d,image=registry/web:1,name="+name+",runtime=docker", want)
	}
	for _, of := range []struct {
		device, direction                               string
		bytes, operations, time, queue, errors, untimed float64
	}{
		{"sda", "read", 52, 51, 0.5, 0.25, 53, 54},
		{"sda", "flush", 0, 55, 0.75, 0, 0, 0},
		{"259:3", "write", 57, 56, 0, 0, 0, 0},
	} {
		if of.bytes != 0 {
			webDevice("container_disk_io_bytes_total", of.device, of.direction, of.bytes)
		}
		webDevice("container_disk_operations_total", of.device, of.direction, of.operations)
		webDevice("container_disk_operation_seconds_total", of.device, of.direction, of.time)
		webDevice("container_disk_queue_seconds_total", of.device, of.direction, of.queue)
		webDevice("container_disk_errors_total", of.device, of.direction, of.errors)
		if of.untimed != 0 {
			webDevice("container_disk_untimed_operations_total", of.device, of.direction, of.untimed)
		}
	}
	webDevice("container_disk_io_latency_seconds", "sda", "read", float64(testHistogram().Count))
	webDirection := func(metric, direction string, want float64) {
		t.Helper()
		f(metric+",direction="+direction+",host=node-1,id=4f1d,image=registry/web:1,name="+name+",runtime=docker", want)
	}
	webDirection("container_vfs_io_bytes_total", "read", 71)
	webDirection("container_vfs_io_bytes_total", "write", 72)
	webDirection("container_vfs_operations_total", "read", 73)
	webDirection("container_vfs_operations_total", "write", 74)
	webType("container_fsync_duration_seconds", "fsync", float64(testHistogram().Count))
	web("container_network_receive_bytes_total", 31)
	web("container_network_transmit_bytes_total", 32)
	web("container_network_receive_packets_total", 33)
	web("container_network_transmit_packets_total", 34)
	web("container_network_receive_errors_total", 35)
	web("container_network_transmit_errors_total", 36)
	web("container_network_receive_packets_dropped_total", 37)
	web("container_network_transmit_packets_dropped_total", 38)
	webAt := func(metric, service string, want float64) {
		t.Helper()
		f("container_listener_"+metric+",host=node-1,id=4f1d,image=registry/web:1,name="+name+",runtime=docker,service="+service, want)
	}
	webAt("drops_total", "others", 43)
	webAt("drops_total", "0.0.0.0:80", 44)
	webAt("queue_connections", "0.0.0.0:80", 45)
	webAt("queue_limit_connections", "0.0.0.0:80", 128)
	web("container_network_tcp_zero_windows_total", 39)
	web("container_network_tcp_zero_windows_ended_total", 40)
	web("container_network_tcp_zero_window_drops_total", 41)
	web("container_network_tcp_listen_overflows_total", 42)
	web("container_network_dropped_packets_total", 150)
	f("container_network_drops_total,host=node-1,id=4f1d,image=registry/web:1,name="+name+",reason=NETFILTER_DROP,runtime=docker", 77)
	f("container_network_drops_total,device=eth0,host=node-1,id=4f1d,image=registry/web:1,name="+name+
		",reason=SOCKET_RCVBUFF,runtime=docker", 73)
	web("container_forward_packets_total", 75)
	web("container_forward_duration_seconds", float64(testHistogram().Count))
	web("container_forward_unmatched_packets_total", 76)
	web("container_forward_timed_one_in", 2)
	web("container_proxy_duration_seconds", float64(testHistogram().Count))
	web("container_proxy_matched_requests_total", float64(testHistogram().Count))
	web("container_proxy_requests_total", 79)
	web("container_proxy_alone_requests_total", 78)
	counted := func(metric, before, after string, want float64) {
		t.Helper()
		f(metric+before+",host=node-1,id=4f1d,image=registry/web:1,name="+name+after, want)
	}
	// Cache references are not known there: absent, not zero.
	counted("container_perf_events_total", ",event=cycles", ",pmu=cpu_core,runtime=docker", 1000)
	counted("container_perf_events_total", ",event=instructions", ",pmu=cpu_core,runtime=docker", 2000)
	counted("container_perf_events_total", ",event=cache_misses", ",pmu=cpu_core,runtime=docker", 40)
	counted("container_process_perf_events_total", ",event=cycles", ",pmu=cpu_core,process=worker,runtime=docker", 600)
	counted("container_perf_enabled_seconds_total", "", ",pmu=cpu_core,runtime=docker", 2)
	counted("container_perf_running_seconds_total", "", ",pmu=cpu_core,runtime=docker", 1)
	counted("container_perf_shared_cycles_total", "", ",pmu=cpu_core,runtime=docker,threads=1", 900)
	counted("container_perf_shared_cycles_total", "", ",pmu=cpu_core,runtime=docker,threads=2", 100)
	counted("container_energy_joules_total", ",domain=package", ",runtime=docker,source=powercap", 1.5)
	counted("container_energy_joules_total", ",domain=psys", ",runtime=docker,source=model", 7e-6)
	// The ended container with one group of numbers, and the rest of the host with none.
	f("container_info,container=db,host=node-1,id=77aa,name=db,namespace=shop,pod=db-0,pod_uid=u-1,runtime=containerd,workload=db,workload_kind=StatefulSet", 1)
	f("container_start_time_seconds,container=db,host=node-1,id=77aa,name=db,namespace=shop,pod=db-0,runtime=containerd,workload=db,workload_kind=StatefulSet", float64(testTime.Add(-time.Hour).UnixMilli())/1e3)
	f("container_cpu_usage_seconds_total,container=db,host=node-1,id=77aa,name=db,namespace=shop,pod=db-0,runtime=containerd,workload=db,workload_kind=StatefulSet", 9e-9)
	f("container_context_switches_total,container=db,host=node-1,id=77aa,name=db,namespace=shop,pod=db-0,runtime=containerd,type=voluntary,workload=db,workload_kind=StatefulSet", 0)
	f("container_context_switches_total,container=db,host=node-1,id=77aa,name=db,namespace=shop,pod=db-0,runtime=containerd,type=involuntary,workload=db,workload_kind=StatefulSet", 0)
	f("container_info,host=node-1,id=host,name=host,runtime=host", 1)

	for _, end := range []struct {
		client, id, side           string
		request, response, pairedV float64
		confidence                 float64
	}{
		{name, "4f1d", "client", 100, 2000, 1, 3},
		{name, "4f1d", "server", 2000, 100, 1, 3},
		{"10.0.0.9", "10.0.0.9", "server", 2000, 100, 0, 0},
	} {
		labels := ",client=" + end.client + ",client_id=" + end.id +
			",host=node-1,server=db,server_container=db,server_id=77aa,server_namespace=shop,server_pod=db-0,server_workload=db,server_workload_kind=StatefulSet,service=172.17.0.3:5432,side=" + end.side + ",transport=tcp"
		edge := func(metric string, want float64) {
			t.Helper()
			f(metric+labels, want)
		}
		edge("outsight_edge_request_bytes_total", end.request)
		edge("outsight_edge_response_bytes_total", end.response)
		edge("outsight_edge_transaction_duration_seconds", float64(testHistogram().Count))
		edge("outsight_edge_connections_opened_total", 3)
		edge("outsight_edge_connections_closed_total", 2)
		f("outsight_edge_connection_failures_total"+labels+",type=refused", 1)
		f("outsight_edge_connection_failures_total"+labels+",type=timed_out", 2)
		f("outsight_edge_connection_failures_total"+labels+",type=unreachable", 3)
		f("outsight_edge_connection_failures_total"+labels+",type=other", 4)
		edge("outsight_edge_retransmits_total", 4)
		edge("outsight_edge_aborted_transactions_total", 5)
		edge("outsight_edge_continued_replies_total", 6)
		edge("outsight_edge_transactions_total", float64(7+8+testHistogram().Count))
		edge("outsight_edge_requests_in_flight", 20-12-5-2)
		edge("outsight_edge_requests_in_flight_most", 4)
		edge("outsight_edge_transfers_total", 7)
		edge("outsight_edge_held_requests_total", 8)
		edge("outsight_edge_pushes_total", 9)
		edge("outsight_edge_upgrades_total", 13)
		edge("outsight_edge_lost_transactions_total", 14)
		edge("outsight_edge_connections_reset_total", 10)
		edge("outsight_edge_connections_timed_out_total", 11)
		edge("outsight_edge_unseen_bytes_total", 12)
		edge("outsight_edge_round_trip_deviation_seconds_total", 0.25)
		edge("outsight_edge_window_limited_seconds_total", 1.5)
		edge("outsight_edge_round_trip_min_seconds", 0.125)
		edge("outsight_edge_first_byte_duration_seconds", float64(testHistogram().Count))
		edge("outsight_edge_round_trip_duration_seconds", float64(testHistogram().Count))
		edge("outsight_edge_connection_duration_seconds", float64(testHistogram().Count))
		request, response := 15.0, 16.0
		if end.side == "server" {
			request, response = response, request
		}
		edge("outsight_edge_network_request_packets_total", request)
		edge("outsight_edge_network_response_packets_total", response)
		edge("outsight_edge_network_request_bytes_total", 10*request)
		edge("outsight_edge_network_response_bytes_total", 10*response)
		edge("outsight_edge_network_reordered_packets_total", 17)
		edge("outsight_edge_network_duplicated_packets_total", 18)
		edge("outsight_edge_network_repeated_packets_total", 19)
		edge("outsight_edge_network_delay_seconds", float64(testHistogram().Count))
		edge("outsight_edge_network_delay_variation_seconds_total", 0.5)
		edge("outsight_edge_network_unread_seconds_total", 0.25)
		edge("outsight_edge_network_unread_requests_total", 20)
		// fewer than the bytes: 2000 of 2012
		edge("outsight_edge_completeness_ratio", float64(7+8+testHistogram().Count)/float64(7+8+testHistogram().Count+14))
		edge("outsight_edge_paired", end.pairedV)
		edge("outsight_edge_confidence", end.confidence)
	}

	endpoint := func(metric, status string, want float64) {
		t.Helper()
		f(metric+",client="+name+",client_id=4f1d,endpoint=query SELECT,host=node-1,protocol=postgresql,server=db,server_container=db,server_id=77aa,server_namespace=shop,server_pod=db-0,server_workload=db,server_workload_kind=StatefulSet,service=172.17.0.3:5432,side=client"+status+",transport=tcp", want)
	}
	endpoint("outsight_endpoint_requests_total", ",status=ok", float64(2+testHistogram().Count))
	endpoint("outsight_endpoint_request_duration_seconds", ",status=ok", float64(testHistogram().Count))
	endpoint("outsight_endpoint_requests_total", "", 3)

	// The same ends and the same address over UDP: another edge, with packets. TCP has none.
	udp := func(metric string, want float64) {
		t.Helper()
		f(metric+",client="+name+",client_id=4f1d,host=node-1,server=db,server_container=db,server_id=77aa,server_namespace=shop,server_pod=db-0,server_workload=db,server_workload_kind=StatefulSet,service=172.17.0.3:5432,side=server,transport=udp", want)
	}
	udp("outsight_edge_request_bytes_total", 62)
	udp("outsight_edge_response_bytes_total", 61)
	udp("outsight_edge_request_packets_total", 64)
	udp("outsight_edge_response_packets_total", 63)
	udp("outsight_edge_one_way_packets_total", 65)
	udp("outsight_edge_aborted_transactions_total", 68)
	maps.DeleteFunc(got, func(series string, _ float64) bool { return strings.HasSuffix(series, ",transport=udp") })

	for part, want := range map[string]float64{"containers": 1.5, "idle": 0.25, "system": 0.75} {
		f("outsight_host_energy_joules_total,domain=package,host=node-1,part="+part+",source=powercap", want)
	}
	for part, want := range map[string]float64{"containers": 7e-6, "idle": 0, "system": 0} {
		f("outsight_host_energy_joules_total,domain=psys,host=node-1,part="+part+",source=model", want)
	}
	f("outsight_energy_meter,detail=Broadwell,domain=psys,host=node-1,others=powercap: no RAPL,source=model", 1)
	f("outsight_energy_meter_error_ratio,host=node-1,source=model", 0.45)
	count := float64(testHistogram().Count)
	probe := func(name, first, last string, v float64) {
		t.Helper()
		f("outsight_probe_"+name+first+",dscp=46,host=node-1,peer="+strings.ReplaceAll(hostile, "\xff", "\ufffd")+last, v)
	}
	probe("interval_seconds", "", ",reflector=192.0.2.2:862", 0.2)
	probe("answered", "", "", 1)
	probe("sent_packets_total", "", "", 101)
	probe("lost_packets_total", "", "", 3)
	probe("lost_one_way_packets_total", ",direction=there", "", 2)
	probe("lost_one_way_packets_total", ",direction=back", "", 1)
	probe("duplicate_packets_total", "", "", 4)
	probe("reordered_packets_total", ",direction=there", "", 5)
	probe("reordered_packets_total", ",direction=back", "", 6)
	probe("round_trip_duration_seconds", "", "", count)
	probe("round_trip_variation_seconds", "", "", count)
	probe("one_way_duration_seconds", ",direction=there", "", count)
	probe("one_way_duration_seconds", ",direction=back", "", count)
	probe("clock_error_seconds", "", "", 0.003)
	probe("above_minimum_duration_seconds", ",direction=there", "", count)
	probe("above_minimum_duration_seconds", ",direction=back", "", count)
	probe("hops", "", ",route=192.0.2.1 *", 3)
	probe("route_changes_total", "", "", 7)
	f("outsight_probe_interval_seconds,dscp=0,host=node-1,peer=b,reflector=[2001:db8::2]:862", 1)
	f("outsight_probe_answered,dscp=0,host=node-1,peer=b", 0)
	f("outsight_probe_sent_packets_total,dscp=0,host=node-1,peer=b", 1)
	f("outsight_probe_lost_packets_total,dscp=0,host=node-1,peer=b", 1)
	capacity := ",from=host,from_id=host,host=node-1,to=" + strings.ReplaceAll(hostile, "\xff", "\ufffd") + ",to_id=id"
	f("outsight_path_capacity_bytes_per_second"+capacity, 1.25e8)
	f("outsight_path_capacity_measured_timestamp_seconds"+capacity, float64(testTime.UnixMilli()-1500)/1e3)
	containers := func(name, direction, last string, v float64) {
		t.Helper()
		f("outsight_container_probe_"+name+",client="+strings.ReplaceAll(hostile, "\xff", "\ufffd")+direction+
			",host=node-1,peer=c"+last+",server=shop/db-0/db", v)
	}
	containers("interval_seconds", "", ",reflector=10.1.2.2:8620", 1)
	containers("answered", "", "", 0)
	containers("sent_packets_total", "", "", 11)
	containers("lost_packets_total", "", "", 3)
	containers("lost_one_way_packets_total", ",direction=there", "", 1)
	containers("lost_one_way_packets_total", ",direction=back", "", 2)
	containers("round_trip_duration_seconds", "", "", count)
	containers("round_trip_variation_seconds", "", "", count)
	containers("clock_error_seconds", "", "", 0.001)
	containers("hops", "", ",route=direct", 1)
	for _, direction := range []string{",direction=there", ",direction=back"} {
		containers("one_way_duration_seconds", direction, "", count)
		containers("above_minimum_duration_seconds", direction, "", count)
	}
	for i, end := range []string{"sender", "reflector"} {
		for j, reason := range []string{"ended", "unknown", "failed"} {
			f("outsight_container_probe_failures_total,end="+end+",host=node-1,reason="+reason, float64(7+3*i+j))
		}
	}
	for i, result := range []string{"answered", "stranger", "limited", "malformed", "forged", "replayed"} {
		f("outsight_probe_reflector_packets_total,host=node-1,result="+result, float64(i+1))
	}
	f("outsight_edges_completeness_ratio,host=node-1", 6062.0/6098)
	f("outsight_edges_unmatched_ratio,host=node-1", 0.5)
	f("outsight_host_cpu_idle_seconds_total,host=node-1", 5)
	f("outsight_host_cpu_other_seconds_total,host=node-1", 1e-9)
	f("outsight_host_network_drops_total,device=docker0,host=node-1,reason=IP_INHDR", 78)
	f("outsight_host_cpu_steal_seconds_total,host=node-1", 1.5)
	f("outsight_host_cores,host=node-1", 2)
	f("outsight_host_memory_bytes,host=node-1", 1<<30)
	f("outsight_agent_cpu_seconds_total,host=node-1", 2)
	f("outsight_agent_resident_memory_bytes,host=node-1", 42)
	f("outsight_host_memory_available_bytes,host=node-1", 1<<29)
	f("outsight_host_filesystem_used_bytes,host=node-1,mount=/", 1<<30)
	f("outsight_host_filesystem_bytes,host=node-1,mount=/", 3<<30)
	f("outsight_agent_read_seconds,host=node-1", 0.003)
	f("outsight_agent_sent_bytes_total,host=node-1,to=otlp", 81)
	f("outsight_agent_sent_bytes_total,host=node-1,to=http", 82)
	f("outsight_program_runs_total,host=node-1,program=on_switch", 10)
	f("outsight_program_runs_total,host=node-1,program=on_exit", 1)
	f("outsight_program_missed_events_total,host=node-1,program=on_switch", 0)
	f("outsight_program_missed_events_total,host=node-1,program=on_exit", 7)
	f("outsight_program_missed_events_total,host=node-1,program=on_fork", 0)
	f("outsight_program_run_seconds_total,host=node-1,program=on_switch", 1e-6)
	f("outsight_drops_total,host=node-1,name=edges", 3)
	f("outsight_drops_total,host=node-1,name=queue", 1)
	f("outsight_entries,host=node-1,name=edges", 9)
	f("outsight_capacity,host=node-1,name=edges", 100)
	f("outsight_cost_ratio,host=node-1,plane=own", 0.004)
	f("outsight_cost_ratio,host=node-1,plane=kernel", 0.003)
	f("outsight_host_clock_error_seconds,host=node-1,source=device", 2e-6)
	f("outsight_host_clock_device_offset_seconds,device=/dev/ptp0,host=node-1", -5e-7)
	f("outsight_host_clock_device_uncertainty_seconds,device=/dev/ptp0,host=node-1", 2.5e-7)
	f("outsight_budget_ratio,host=node-1", 0.01)
	for name, want := range map[string][3]float64{"names,purpose=what requests ask for": {0.002, 0, 0},
		"recorder,purpose=samples": {0, 1, 3}} {
		basis := ""
		if strings.HasPrefix(name, "names,") {
			basis = "basis=estimate,"
		}
		f("outsight_feature_cost_ratio,"+basis+"host=node-1,name="+name, want[0])
		f("outsight_feature_shed,host=node-1,name="+name, want[1])
		f("outsight_feature_changes_total,host=node-1,name="+name, want[2])
	}
	f("outsight_feature_cost_ratio,host=node-1,name=rest,purpose=everything else", 0.005)
	f("outsight_feature_available,host=node-1,name=tp_btf/sched_switch,purpose=CPU time", 1)
	f("outsight_feature_available,host=node-1,name=iter/tcp,purpose=connections open before the start", 0)
	for left, v := range got {
		// A counter that the snapshot does not set has no line above.
		if v != 0 && !strings.HasPrefix(left, "outsight_build_info,goversion=go") {
			t.Errorf("%s: not expected", left)
		}
	}
}

func TestConvertIsDeterministic(t *testing.T) {
	a, b := FromFrame(frame.Of(testSnapshot()), SeriesOptions{}), FromFrame(frame.Of(testSnapshot()), SeriesOptions{})
	if !reflect.DeepEqual(a, b) {
		t.Error("equal snapshots gave different series")
	}
	want := testTime.Truncate(time.Millisecond)
	rows := map[string]int{}
	for i, m := range Metrics() {
		rows[m.Name] = i
	}
	for i, s := range a {
		if !s.Time.Equal(want) {
			t.Fatalf("%s: time %v, want %v", s.Name, s.Time, want)
		}
		if i > 0 && rows[s.Name] < rows[a[i-1].Name] {
			t.Errorf("%s after %s: not in the order of the table", s.Name, a[i-1].Name)
		}
		for j := range s.Labels[1:] {
			if s.Labels[j].Name >= s.Labels[j+1].Name {
				t.Errorf("%s: labels out of order", render(s))
			}
		}
	}
	if FromFrame(nil, SeriesOptions{}) != nil {
		t.Error("series of no frame")
	}
}

// A series tells when it was zero: a container's at its start, an edge's when it was not there
// yet, else when the younger of its ends started.
func TestConvertStart(t *testing.T) {
	s := testSnapshot()
	s.Edges[1].Start = testTime.Add(-time.Second)
	starts := map[string]time.Time{}
	for _, series := range FromFrame(frame.Of(s), SeriesOptions{}) {
		if series.Kind == model.Gauge && !series.Start.IsZero() {
			t.Errorf("%s: a gauge with a start", series.Name)
		}
		switch series.Name {
		case ContainerCPUUsage, EdgeRequestBytes, HostCPUIdle:
			starts[render(series)] = series.Start
		}
	}
	for key, start := range starts {
		var want time.Time
		switch {
		case strings.Contains(key, "outsight_host"):
		case strings.Contains(key, "side=server") && strings.Contains(key, "client_id=4f1d"):
			want = testTime.Add(-time.Second)
		case strings.Contains(key, "id=4f1d"):
			want = testTime.Add(-time.Minute)
		default:
			want = testTime.Add(-time.Hour)
		}
		if want = want.Truncate(time.Millisecond); !start.Equal(want) {
			t.Errorf("%s: start %v, want %v", key, start, want)
		}
	}
	if len(starts) != 7 {
		t.Errorf("got %d series, want 7", len(starts))
	}
}

// Edges whose labels are the same are one series: the sum.
func TestConvertAddsEqualEdges(t *testing.T) {
	s := testSnapshot()
	s.Edges = append(s.Edges, s.Edges[2], s.Edges[2])
	before := s.Edges[2].Counters.Latency.Count
	got := values(t, FromFrame(frame.Of(s), SeriesOptions{}))
	key := ",client=10.0.0.9,client_id=10.0.0.9,host=node-1,server=db,server_container=db,server_id=77aa,server_namespace=shop,server_pod=db-0,server_workload=db,server_workload_kind=StatefulSet,service=172.17.0.3:5432,side=server,transport=tcp"
	if v := got[EdgeRequestBytes+key]; v != 6000 {
		t.Errorf("bytes: got %v, want 6000", v)
	}
	if v := got[EdgeTransactionDuration+key]; v != float64(3*before) {
		t.Errorf("transactions: got %v, want %v", v, 3*before)
	}
	if s.Edges[2].Counters.Latency.Count != before {
		t.Error("the snapshot was changed")
	}
}

func TestConvertOneSeriesPerContainer(t *testing.T) {
	s := testSnapshot()
	ended, again := *s.Containers[1].Container, *s.Containers[1].Container
	again.Ended, again.Started = time.Time{}, testTime
	s.Containers = []model.ContainerSample{
		{Container: &ended, CPU: &model.CPUCounters{UsageNS: 5_000_000_000}},
		{Container: &again, CPU: &model.CPUCounters{UsageNS: 1_000_000_000}},
	}
	for range 2 {
		got := values(t, FromFrame(frame.Of(s), SeriesOptions{}))
		if v := got["container_cpu_usage_seconds_total,container=db,host=node-1,id=77aa,name=db,namespace=shop,pod=db-0,runtime=containerd,workload=db,workload_kind=StatefulSet"]; v != 1 {
			t.Errorf("got %v, want the running one's 1", v)
		}
		s.Containers[0], s.Containers[1] = s.Containers[1], s.Containers[0]
	}
}

func TestLabelIsBounded(t *testing.T) {
	a, b := strings.Repeat("ü", MaxLabelBytes)+"a", strings.Repeat("ü", MaxLabelBytes)+"b"
	la, lb := label("x", a).Value, label("x", b).Value
	for _, v := range []string{la, lb} {
		if len(v) > MaxLabelBytes || !utf8.ValidString(v) || !strings.Contains(v, "…") {
			t.Errorf("got %d bytes ending %q", len(v), v[len(v)-20:])
		}
	}
	if la == lb {
		t.Error("two long values became one")
	}
	if exact := strings.Repeat("x", MaxLabelBytes); label("x", exact).Value != exact {
		t.Error("a value of just the greatest length was cut")
	}
}

// Names of our own follow OpenTelemetry's rule; the others are cAdvisor's or follow it too.
func TestTableNames(t *testing.T) {
	seen := map[string]bool{}
	namer := otlptranslator.MetricNamer{WithMetricSuffixes: true}
	for _, m := range Metrics() {
		if seen[m.Name] || m.Help == "" || m.OTel == "" || strings.ContainsAny(m.Help, "\"\\\n") {
			t.Errorf("%s: twice, or a name or help text is missing or needs escapes", m.Name)
		}
		seen[m.Name] = true
		if (m.Kind == model.Counter) != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s: kind and suffix disagree", m.Name)
		}
		if !strings.HasPrefix(m.OTel, "outsight.") {
			continue
		}
		kinds := map[model.SeriesKind]otlptranslator.MetricType{
			model.Counter: otlptranslator.MetricTypeMonotonicCounter, model.Gauge: otlptranslator.MetricTypeGauge,
			model.HistogramSeries: otlptranslator.MetricTypeExponentialHistogram,
		}
		want, err := namer.Build(otlptranslator.Metric{Name: m.OTel, Unit: m.Unit, Type: kinds[m.Kind]})
		if err != nil || m.Name != want {
			t.Errorf("%s (%s): got %s, want %s (%v)", m.OTel, m.Unit, m.Name, want, err)
		}
	}
}

// Each name that code asks a store for is one of the table.
func TestNamesAreMetrics(t *testing.T) {
	text, err := os.ReadFile("names.go")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range Metrics() {
		known[m.Name] = true
	}
	names := regexp.MustCompile(`= "((?:container|outsight)_\w+)"`).FindAllStringSubmatch(string(text), -1)
	if len(names) < 20 {
		t.Errorf("%d names in names.go: has its form changed?", len(names))
	}
	for _, name := range names {
		if !known[name[1]] {
			t.Errorf("there is no metric %s", name[1])
		}
	}
}
