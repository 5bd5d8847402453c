package pull

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"outsight/internal/model"
)

// counts are the counters of a Pull.
type counts struct {
	readings, bytes, readNS, dropped, stale, malformed, unsent atomic.Uint64
	frames, failedFrames, unrenewed, takenOver                 atomic.Uint64
	// failed are by the index of their Reason in Reasons.
	failed, failedApplications [5]atomic.Uint64
}

// Drops are its bounds.
func (p *Pull) Drops() []model.Drop {
	used := 0
	for _, queue := range p.makers {
		used += len(queue)
	}
	all := []model.Drop{{Name: "pull/readings", Count: p.counts.dropped.Load(), Used: uint64(used),
		Capacity: uint64(len(p.makers) * waitingReadings)}}
	if p.options.Group != nil {
		all = append(all, model.Drop{Name: "pull/messages", Count: p.options.Group.Dropped()})
	}
	return all
}

// WriteMetrics writes its metrics in Prometheus's text format.
func (p *Pull) WriteMetrics(w io.Writer) error {
	var b strings.Builder
	family := func(name, kind, help string, samples ...any) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		for n := 0; n < len(samples); n += 2 {
			fmt.Fprintf(&b, "%s%s %v\n", name, samples[n], samples[n+1])
		}
	}
	states := map[string]int{}
	var late, refused, leftOut []any
	handedOn := 0
	for _, s := range p.Statuses() {
		if s.ApplicationsLeftOut > 0 {
			leftOut = append(leftOut, fmt.Sprintf("{address=%q}", s.Address), s.ApplicationsLeftOut)
		}
		if s.ApplicationsRefused > 0 {
			refused = append(refused, fmt.Sprintf("{address=%q}", s.Address), s.ApplicationsRefused)
		}
		switch {
		case !s.Mine:
			states["elsewhere"]++
			if s.HandedOn {
				handedOn++
			}
		case s.Late != "":
			states["late"]++
			late = append(late, fmt.Sprintf("{address=%q,reason=%q}", s.Address, s.Late), 1)
		case !s.Read:
			states["begun"]++
		default:
			states["read"]++
		}
	}
	family("outsight_pull_hosts", "gauge", "Hosts that are to be read: this server does (read), has begun to (begun), tries in "+
		"vain (late), or another one of its group does (elsewhere)", `{state="read"}`, states["read"], `{state="begun"}`,
		states["begun"], `{state="late"}`, states["late"], `{state="elsewhere"}`, states["elsewhere"])
	family("outsight_pull_late", "gauge", "1 for each host that this server tries to read in vain, and why", late...)
	family("outsight_pull_readings_total", "counter", "Readings of hosts by this server", "", p.counts.readings.Load())
	var failed []any
	for i, reason := range Reasons {
		failed = append(failed, fmt.Sprintf("{reason=%q}", reason), p.counts.failed[i].Load())
	}
	family("outsight_pull_failed_readings_total", "counter", "Readings that failed, and why", failed...)
	failed = nil
	for i, reason := range Reasons {
		failed = append(failed, fmt.Sprintf("{reason=%q}", reason), p.counts.failedApplications[i].Load())
	}
	family("outsight_pull_failed_application_readings_total", "counter", "Readings that came without applications' own metrics, "+
		"and why; they are there at a later one, with what was counted", failed...)
	family("outsight_pull_refused_application_metrics", "gauge", "Applications' own metrics that hosts told of and that were "+
		"refused: of names that are none, of an unknown type, or too many of a container or host", refused...)
	family("outsight_pull_left_out_application_metrics", "gauge", "Applications' own metrics for which hosts had no room", leftOut...)
	family("outsight_pull_read_bytes_total", "counter", "Bytes of regions that were read", "", p.counts.bytes.Load())
	family("outsight_pull_read_seconds_total", "counter", "Time that readings took, those that failed too", "",
		float64(p.counts.readNS.Load())/model.Nanoseconds)
	family("outsight_pull_frames_total", "counter", "Frames that were made of readings and taken", "", p.counts.frames.Load())
	family("outsight_pull_failed_frames_total", "counter", "Frames that were not taken; the next one has what was counted", "",
		p.counts.failedFrames.Load())
	family("outsight_pull_dropped_readings_total", "counter",
		"Readings of which no frame was made, since too many were waiting; the next one has what was counted", "",
		p.counts.dropped.Load())
	if p.options.Group == nil {
		_, err := io.WriteString(w, b.String())
		return err
	}
	members := 0
	if lease := p.lease.Load(); lease != nil {
		members = len(lease.Members)
	}
	family("outsight_pull_members", "gauge", "Servers that share the hosts", "", members)
	family("outsight_pull_handed_on_hosts", "gauge", "Hosts that this server cannot read and another one of its group does", "",
		handedOn)
	family("outsight_pull_taken_over_hosts_total", "counter", "Times that a host became this server's to read", "",
		p.counts.takenOver.Load())
	family("outsight_pull_unrenewed_leases_total", "counter", "Times that the lease of this server could not be renewed", "",
		p.counts.unrenewed.Load())
	family("outsight_pull_stale_readings_total", "counter", "Readings that came after newer ones, and count nothing", "",
		p.counts.stale.Load())
	family("outsight_pull_unsent_readings_total", "counter", "Readings that the other servers were not told", "",
		p.counts.unsent.Load())
	family("outsight_pull_lost_readings_total", "counter", "Readings of other servers that came too fast, or were none",
		`{reason="slow"}`, p.options.Group.Dropped(), `{reason="malformed"}`, p.counts.malformed.Load())
	_, err := io.WriteString(w, b.String())
	return err
}
