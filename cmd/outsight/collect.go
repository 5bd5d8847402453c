package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/agent"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/pull"
	"outsight/internal/region"
	"outsight/internal/region/credit"
	"outsight/internal/region/shm"
)

type collectFlags struct {
	from     []string
	keyFile  string
	once     bool
	interval time.Duration
	output   string
	credit   byteSize
	// dial is how HOST:PORT is read.
	dial pull.DialOptions
}

func newCollect() *cobra.Command {
	o := collectFlags{credit: 256 << 10}
	c := &cobra.Command{
		Use:   "collect",
		Short: "Read the kernel's counters of hosts from outside, without their agents",
		Long: `Read the counters of containers and edges as they lie in the kernel of each host: no process of the host is
asked, so that its figures come also when its CPUs are used up. The host's agent must have been started with
--region-socket (for readers on the same host) or --region-listen and --region-key-file (for others). Rates need two
readings; --once shows the sums since the host's agent began to count.`,
		Example: `  sudo outsight agent --region-socket /run/outsight/region.sock
  sudo outsight collect --from /run/outsight/region.sock --once
  sudo outsight collect --from /run/outsight/region.sock --interval 1s --output json
  outsight collect --from web1:8473,web2:8473 --key-file /etc/outsight/region.keys`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.run(c.Context(), c.OutOrStdout())
		},
	}
	c.Flags().StringSliceVar(&o.from, "from", nil, "where to read: HOST:PORT, or the path of a socket, with commas between "+
		"them")
	c.Flags().StringVar(&o.keyFile, "key-file", "", "file whose first key is used for HOST:PORT: a line of a number and "+
		"hexadecimal digits, as in --region-key-file of the agent")
	c.Flags().BoolVar(&o.once, "once", false, "read once, and show the sums since the agent began")
	c.Flags().DurationVar(&o.interval, "interval", time.Second, "time between two readings")
	c.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	c.Flags().StringVar(&o.dial.Transport, "transport", pull.TransportAuto, "how HOST:PORT is read: kernel (packets that the host's "+
		"kernel answers, whatever its processes do), tcp (its agent answers), rdma (its network card answers), or auto (kernel "+
		"where it answers, else tcp)")
	c.Flags().StringVar(&o.dial.Device, "rdma-device", "", "RDMA device of this host for --transport rdma, as in \"rdma link\" "+
		"(default: the first with an active port)")
	c.Flags().Var(&o.credit, "credit", "how much is read at a time over the network of all hosts together (Credit-FC), shared "+
		"by those that are being read; 0: no bound")
	return c
}

func (o *collectFlags) check() error {
	switch {
	case len(o.from) == 0:
		return usagef("--from is needed: HOST:PORT, or the path of a socket")
	case o.credit != 0 && o.credit < credit.Fragment:
		return usagef("--credit is %d bytes, want 0, or %d or more", o.credit, credit.Fragment)
	case o.interval < time.Millisecond:
		return usagef("--interval is %v, want 1ms or more", o.interval)
	}
	if err := oneOf("transport", o.dial.Transport, pull.Transports...); err != nil {
		return err
	}
	for _, from := range o.from {
		if !isPath(from) && o.keyFile == "" {
			return usagef("--key-file is needed for %s", from)
		}
	}
	return oneOf("output", o.output, "text", "json")
}

// isPath tells the path of a socket from HOST:PORT.
func isPath(from string) bool { return strings.Contains(from, "/") }

// collected is a host that is read.
type collected struct {
	from      string
	key       region.Key
	reader    credit.ReadCloser
	collector *region.Collector
	// dial is how it may be read if it is no path, and by the transport that is used.
	dial pull.DialOptions
	by   string
	// window bounds reads over the network; nil: no bound.
	window   *credit.Window
	before   *region.Sample
	beforeAt time.Time
}

func (o *collectFlags) run(ctx context.Context, out io.Writer) error {
	var key region.Key
	if o.keyFile != "" {
		keys, err := agent.ReadRegionKeys(o.keyFile)
		if err != nil {
			return fmt.Errorf("reading --key-file: %w", err)
		}
		key = keys[0]
	}
	var window *credit.Window
	if o.credit > 0 {
		var err error
		if window, err = credit.New(int(o.credit)); err != nil {
			return err
		}
	}
	hosts := make([]*collected, len(o.from))
	for i, from := range o.from {
		hosts[i] = &collected{from: from, key: key, window: window, dial: o.dial}
		defer hosts[i].close()
	}
	tick := time.NewTicker(o.interval)
	defer tick.Stop()
	for first := true; ; first = false {
		results := make([]collectResult, len(hosts))
		done := make(chan int, len(hosts))
		for i, h := range hosts {
			go func() {
				results[i] = h.read(ctx, o.interval)
				done <- i
			}()
		}
		for range hosts {
			<-done
		}
		if ctx.Err() != nil {
			return nil
		}
		if o.once || !first || o.output == "json" {
			if err := o.write(out, results); err != nil {
				return err
			}
		}
		if o.once {
			return failed(results)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// failed is an error where no host could be read.
func failed(results []collectResult) error {
	for _, r := range results {
		if r.Sample != nil {
			return nil
		}
	}
	return fmt.Errorf("no host could be read: %s", results[0].Why)
}

// collectResult is one reading of one host.
type collectResult struct {
	From string
	// By is the transport: socket, kernel, tcp or rdma; empty where there is none.
	By string
	// Late says that there is no sample of the host at this reading, and Why.
	Late bool
	Why  string
	At   time.Time
	Took time.Duration
	// Sample is nil where it is late; Before is that of the reading before, nil for the first and after a restart.
	Sample, Before *region.Sample
	BeforeAt       time.Time
}

// leastDeadline is the least time for a reading.
const leastDeadline = time.Second

// read reads the host within the interval.
func (c *collected) read(ctx context.Context, interval time.Duration) collectResult {
	r := collectResult{From: c.from, At: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, max(interval, leastDeadline))
	defer cancel()
	err := c.open(ctx)
	if err == nil {
		r.Sample, err = c.collector.Collect(ctx)
	}
	r.Took, r.By = time.Since(r.At), c.by
	if err != nil {
		r.Late, r.Why = true, whyLate(err)
		c.close()
		return r
	}
	// A new connection may be to another agent.
	same := c.before != nil && c.before.Control.EpochNS == r.Sample.Control.EpochNS
	if same {
		r.Before, r.BeforeAt = c.before, c.beforeAt
	}
	c.before, c.beforeAt = r.Sample, r.At
	return r
}

func (c *collected) open(ctx context.Context) (err error) {
	if c.reader != nil {
		return nil
	}
	if isPath(c.from) {
		var r *shm.Client
		if r, err = shm.Open(ctx, c.from, shm.Options{}); err == nil {
			c.reader, c.by = r, "socket"
		}
	} else {
		var r credit.ReadCloser
		if r, c.by, err = pull.Dial(ctx, c.from, c.key, c.dial); err == nil {
			c.reader = r
			if c.window != nil {
				c.reader = c.window.Within(r)
			}
		}
	}
	if err == nil {
		c.collector = region.NewCollector(c.reader)
	}
	return err
}

func (c *collected) close() {
	if c.reader != nil {
		c.reader.Close()
		c.reader, c.by = nil, ""
	}
}

// whyLate says in a word what kind of error it is, and the error.
func whyLate(err error) string { return string(pull.ReasonOf(err)) + ": " + err.Error() }

func (o *collectFlags) write(out io.Writer, results []collectResult) error {
	if o.output == "json" {
		all := make([]collectJSON, len(results))
		for i := range results {
			all[i] = jsonOf(&results[i])
		}
		return json.NewEncoder(out).Encode(all)
	}
	for i := range results {
		if err := writeResult(out, &results[i]); err != nil {
			return err
		}
	}
	return nil
}

type collectJSON struct {
	From        string           `json:"from"`
	Transport   string           `json:"transport,omitempty"`
	Host        string           `json:"host,omitempty"`
	BootID      string           `json:"boot_id,omitempty"`
	Late        bool             `json:"late"`
	Why         string           `json:"why,omitempty"`
	At          time.Time        `json:"at"`
	TookSeconds float64          `json:"took_seconds"`
	Epoch       *time.Time       `json:"epoch,omitempty"`
	Restarted   bool             `json:"restarted,omitempty"`
	Reads       int              `json:"reads,omitempty"`
	Bytes       int64            `json:"bytes,omitempty"`
	Containers  []collectedEntry `json:"containers,omitempty"`
	Edges       []collectedEntry `json:"edges,omitempty"`
	Disks       []collectedEntry `json:"disks,omitempty"`
	Endpoints   []collectedEntry `json:"endpoints,omitempty"`
	// Why applications' own metrics are not there.
	ApplicationsWhy string `json:"applications_why,omitempty"`
	// How many of them are not there: of no name that may be, or too many.
	ApplicationsLeftOut int `json:"applications_left_out,omitempty"`
}

// collectedEntry is a container, an edge, a disk or an endpoint with its figures by series.
type collectedEntry struct {
	ID           string             `json:"id,omitempty"`
	Name         string             `json:"name,omitempty"`
	Image        string             `json:"image,omitempty"`
	PodName      string             `json:"pod,omitempty"`
	PodNamespace string             `json:"namespace,omitempty"`
	Owner        string             `json:"owner,omitempty"`
	Peer         string             `json:"peer,omitempty"`
	Side         string             `json:"side,omitempty"`
	Transport    string             `json:"transport,omitempty"`
	Service      string             `json:"service,omitempty"`
	Client       string             `json:"client,omitempty"`
	Process      string             `json:"process,omitempty"`
	Index        *uint32            `json:"index,omitempty"`
	Device       string             `json:"device,omitempty"`
	Protocol     string             `json:"protocol,omitempty"`
	Endpoint     string             `json:"endpoint,omitempty"`
	Status       string             `json:"status,omitempty"`
	Metrics      map[string]float64 `json:"metrics"`
	// Applications are the metrics that a container's processes have defined themselves.
	Applications map[string]float64            `json:"applications,omitempty"`
	Histograms   map[string]collectedHistogram `json:"histograms,omitempty"`
}

type collectedHistogram struct {
	Count      uint64  `json:"count"`
	SumSeconds float64 `json:"sum_seconds"`
	// The percentiles are missing while nothing was counted.
	P50Seconds *graph.Seconds `json:"p50_seconds,omitempty"`
	P99Seconds *graph.Seconds `json:"p99_seconds,omitempty"`
}

func jsonOf(r *collectResult) collectJSON {
	j := collectJSON{From: r.From, Transport: r.By, Late: r.Late, Why: r.Why, At: r.At, TookSeconds: r.Took.Seconds()}
	s := r.Sample
	if s == nil {
		return j
	}
	epoch := time.Unix(0, int64(s.Control.EpochNS))
	j.Host, j.BootID, j.Epoch, j.Restarted, j.Reads, j.Bytes = s.Control.Host, s.Control.BootID, &epoch, s.Restarted,
		s.Reads, s.Bytes
	for i := range s.Containers {
		c := &s.Containers[i]
		e := collectedEntry{ID: c.ID, Name: c.Name, Image: c.Image, PodName: c.PodName, PodNamespace: c.PodNamespace}
		e.fill(c.Figures)
		j.Containers = append(j.Containers, e)
	}
	for i := range s.Applications {
		m := &s.Applications[i]
		e := &j.Containers[m.Container]
		if e.Applications == nil {
			e.Applications = map[string]float64{}
		}
		e.Applications[applicationSeries(m)] = applicationValue(m)
	}
	j.ApplicationsLeftOut = s.ApplicationsRefused + s.ApplicationsLeftOut
	if s.ApplicationsError != nil {
		j.ApplicationsWhy = whyLate(s.ApplicationsError)
	}
	edges := map[edgeRecord]collectedEntry{}
	for i := range s.Disks {
		d := &s.Disks[i]
		e := collectedEntry{Owner: ownerOf(s, d.Group)}
		if !d.Syncs {
			e.Device = d.Device.Label()
		}
		e.fill(d.Figures)
		j.Disks = append(j.Disks, e)
	}
	for i := range s.Edges {
		k := &s.Edges[i].Key
		e := collectedEntry{Owner: nameOf(s, k.Owner), Peer: peerOf(s, k), Side: k.Role.String(), Transport: k.Transport.String(),
			Process: k.Process, Index: &s.Edges[i].Index}
		if !k.Others {
			e.Service = k.Service.String()
		}
		if k.Client.IsValid() {
			e.Client = k.Client.String()
		}
		edges[edgeRecord{s.Edges[i].Index, s.Edges[i].Generation}] = e
		e.fill(s.Edges[i].Figures)
		j.Edges = append(j.Edges, e)
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if one, known := edges[edgeRecord{e.Edge, e.EdgeGeneration}]; known {
			one.Protocol, one.Endpoint, one.Status = string(e.Key.Protocol), e.Key.Name, e.Key.Status
			one.fill(e.Figures)
			j.Endpoints = append(j.Endpoints, one)
		}
	}
	return j
}

func (e *collectedEntry) fill(of region.Figures) {
	e.Metrics = make(map[string]float64, len(of))
	for i := range of {
		f := &of[i]
		series := f.Metric.Series()
		if f.Histogram == nil {
			if !f.IsHistogram() {
				e.Metrics[series] = f.Value()
			}
			continue
		}
		if e.Histograms == nil {
			e.Histograms = make(map[string]collectedHistogram)
		}
		h := collectedHistogram{Count: f.Histogram.Count, SumSeconds: float64(f.Histogram.SumNS) / model.Nanoseconds}
		if h.Count > 0 {
			p50, p99 := graph.Seconds(f.Histogram.Quantile(0.5)), graph.Seconds(f.Histogram.Quantile(0.99))
			h.P50Seconds, h.P99Seconds = &p50, &p99
		}
		e.Histograms[series] = h
	}
}

// nameOf is the name of the container of a control group.
func nameOf(s *region.Sample, id model.CgroupID) string {
	if at, known := s.Dictionary.Groups[id]; known {
		return s.Dictionary.Containers[at].Name
	}
	return ""
}

// ownerOf is the container of a control group that did something on a disk: the host, where it is of none.
func ownerOf(s *region.Sample, id model.CgroupID) string {
	if name := nameOf(s, id); name != "" {
		return name
	}
	return model.HostContainerID
}

// peerOf is who is at the other end of an edge: a container of the host by its control group or its address, or else the
// address.
func peerOf(s *region.Sample, k *model.KernelEdgeKey) string {
	if name := nameOf(s, k.Peer); k.Peer != 0 && name != "" {
		return name
	}
	address := k.Service.Addr()
	if k.Role == model.RoleServer {
		address = k.Client
	}
	if !address.IsValid() {
		return "any"
	}
	for i := range s.Dictionary.Containers {
		if c := &s.Dictionary.Containers[i]; c.Runtime != model.HostRuntime && slices.Contains(c.Addresses, address) {
			return c.Name
		}
	}
	return address.String()
}

// Metrics of the tables.
const (
	cpuSeries       = "container_cpu_usage_seconds_total"
	memorySeries    = "container_memory_usage_bytes"
	periodSeries    = "container_cpu_cfs_periods_total"
	throttledSeries = "container_cpu_cfs_throttled_periods_total"
	waitSeries      = "container_run_queue_latency_seconds"
	threadSeries    = "container_threads"
	requestSeries   = "outsight_edge_transaction_duration_seconds"
	sentSeries      = "outsight_edge_request_bytes_total"
	answeredSeries  = "outsight_edge_response_bytes_total"
	operationSeries = "container_disk_operations_total"
	diskSeries      = "container_disk_io_bytes_total"
	ioSeries        = "container_disk_io_latency_seconds"
)

// writeResult writes the tables of one host: of what happened since the reading before, or, without one, since the
// agent began.
func writeResult(out io.Writer, r *collectResult) error {
	if r.Late {
		_, err := fmt.Fprintf(out, "%s  LATE  %s\n", r.From, graph.Clean(r.Why))
		return err
	}
	s := r.Sample
	over := r.At.Sub(time.Unix(0, int64(s.Control.EpochNS)))
	since := "since its agent began " + over.Round(time.Second).String() + " ago"
	if r.Before != nil {
		over = r.At.Sub(r.BeforeAt)
		since = "in the last " + over.Round(time.Millisecond).String()
	}
	fmt.Fprintf(out, "%s  %s  read by %s in %v (%d reads, %s), %s\n", graph.Clean(s.Control.Host), r.From, r.By,
		r.Took.Round(10*time.Microsecond), s.Reads, bytesText(float64(s.Bytes)), since)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "CONTAINER\tCPU\tMEMORY\tTHROTTLED\tWAIT P99\tTHREADS\t")
	containers := slices.Clone(s.Containers)
	slices.SortStableFunc(containers, func(a, b region.ContainerFigures) int { return cmp.Compare(a.Name, b.Name) })
	ofContainer, ofEdge := r.before()
	for i := range containers {
		c := &containers[i]
		g := gained{c.Figures, ofContainer[c.ID], over}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", graph.Clean(c.Name), g.cores(cpuSeries), g.level(memorySeries, bytesText),
			g.share(throttledSeries, periodSeries), g.quantile(waitSeries, 0.99), g.level(threadSeries, plainText))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := errors.Join(r.writeApplications(out, w, over), r.writeDisks(w, over)); err != nil || len(s.Edges) == 0 {
		return err
	}
	fmt.Fprintln(w, "END\tPEER\tSIDE\tSERVICE\tREQUESTS\tSENT\tANSWERED\tP50\tP99\t")
	for i := range s.Edges {
		e := &s.Edges[i]
		g := gained{e.Figures, ofEdge[edgeRecord{e.Index, e.Generation}], over}
		service := e.Key.Service.String()
		if e.Key.Others {
			service = "others"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n",
			endOf(s, &e.Key), graph.Clean(peerOf(s, &e.Key)), e.Key.Role, service, g.count(requestSeries), g.rate(sentSeries),
			g.rate(answeredSeries), g.quantile(requestSeries, 0.5), g.quantile(requestSeries, 0.99))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return r.writeEndpoints(w, over)
}

// endOf is who is at this end of an edge.
func endOf(s *region.Sample, k *model.KernelEdgeKey) string {
	return graph.Clean(strings.TrimSpace(cmp.Or(nameOf(s, k.Owner), "gone") + " " + k.Process))
}

// writeDisks writes what containers did on disks, if there is something.
func (r *collectResult) writeDisks(w *tabwriter.Writer, over time.Duration) error {
	before := map[uint64]region.Figures{}
	if r.Before != nil {
		for i := range r.Before.Disks {
			before[r.Before.Disks[i].Number] = r.Before.Disks[i].Figures
		}
	}
	of := func(series, direction string) string { return fmt.Sprintf("%s{direction=%q}", series, direction) }
	head := "CONTAINER\tDISK\tREADS\tREAD\tREAD P99\tWRITES\tWRITTEN\tWRITE P99\t\n"
	for i := range r.Sample.Disks {
		d := &r.Sample.Disks[i]
		if d.Syncs {
			continue
		}
		g := gained{d.Figures, before[d.Number], over}
		fmt.Fprintf(w, head+"%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", graph.Clean(ownerOf(r.Sample, d.Group)),
			graph.Clean(d.Device.Label()), g.perSecond(of(operationSeries, "read")), g.rate(of(diskSeries, "read")),
			g.quantile(of(ioSeries, "read"), 0.99), g.perSecond(of(operationSeries, "write")), g.rate(of(diskSeries, "write")),
			g.quantile(of(ioSeries, "write"), 0.99))
		head = ""
	}
	return w.Flush()
}

// writeEndpoints writes what requests asked for, if that is known of some.
func (r *collectResult) writeEndpoints(w *tabwriter.Writer, over time.Duration) error {
	before, edges := map[uint64]region.Figures{}, map[edgeRecord]*region.EdgeFigures{}
	if r.Before != nil {
		for i := range r.Before.Endpoints {
			before[r.Before.Endpoints[i].Number] = r.Before.Endpoints[i].Figures
		}
	}
	for i := range r.Sample.Edges {
		e := &r.Sample.Edges[i]
		edges[edgeRecord{e.Index, e.Generation}] = e
	}
	head := "END\tPEER\tSIDE\tENDPOINT\tSTATUS\tREQUESTS\tP50\tP99\t\n"
	for i := range r.Sample.Endpoints {
		e := &r.Sample.Endpoints[i]
		of := edges[edgeRecord{e.Edge, e.EdgeGeneration}]
		if of == nil {
			continue
		}
		g := gained{e.Figures, before[e.Number], over}
		fmt.Fprintf(w, head+"%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", endOf(r.Sample, &of.Key),
			graph.Clean(peerOf(r.Sample, &of.Key)), of.Key.Role, graph.Clean(string(e.Key.Protocol)+" "+e.Key.Name),
			cmp.Or(e.Key.Status, nothing), g.perSecond(region.RequestsSeries), g.quantile(region.AnsweredSeries, 0.5),
			g.quantile(region.AnsweredSeries, 0.99))
		head = ""
	}
	return w.Flush()
}

// edgeRecord is a record of an edge: of an index, as long as its generation is the same.
type edgeRecord struct{ index, generation uint32 }

// before are the figures of the reading before, by the ID of the container and by the record of the edge; none without one.
func (r *collectResult) before() (containers map[string]region.Figures, edges map[edgeRecord]region.Figures) {
	containers, edges = map[string]region.Figures{}, map[edgeRecord]region.Figures{}
	if r.Before == nil {
		return containers, edges
	}
	for i := range r.Before.Containers {
		containers[r.Before.Containers[i].ID] = r.Before.Containers[i].Figures
	}
	for i := range r.Before.Edges {
		e := &r.Before.Edges[i]
		edges[edgeRecord{e.Index, e.Generation}] = e.Figures
	}
	return containers, edges
}

// gained are figures with those of an earlier reading; before is nil without one.
type gained struct {
	now, before region.Figures
	over        time.Duration
}

const nothing = "–"

func (g *gained) counter(series string) (n float64, known bool) {
	f := g.now.Of(series)
	if f == nil {
		return 0, false
	}
	n = f.Value()
	if b := g.before.Of(series); b != nil && b.Count <= f.Count {
		n -= b.Value()
	}
	return n, true
}

func (g *gained) cores(series string) string {
	n, known := g.counter(series)
	if !known {
		return nothing
	}
	return fmt.Sprintf("%.1f%%", 100*n/g.over.Seconds())
}

func (g *gained) level(series string, write func(float64) string) string {
	if f := g.now.Of(series); f != nil {
		return write(f.Value())
	}
	return nothing
}

func (g *gained) share(part, of string) string {
	n, known := g.counter(part)
	all, _ := g.counter(of)
	switch {
	case !known:
		return nothing
	case all == 0:
		return "0%"
	}
	return fmt.Sprintf("%.1f%%", 100*n/all)
}

func (g *gained) histogram(series string) *model.Histogram {
	f := g.now.Of(series)
	if f == nil || f.Histogram == nil {
		return nil
	}
	if b := g.before.Of(series); b != nil && b.Histogram != nil {
		return f.Histogram.Since(b.Histogram)
	}
	return f.Histogram
}

func (g *gained) quantile(series string, q float64) string {
	h := g.histogram(series)
	if h == nil || h.Count == 0 {
		return nothing
	}
	s := graph.Seconds(h.Quantile(q))
	return graph.Duration(&s)
}

func (g *gained) count(series string) string {
	h := g.histogram(series)
	if h == nil {
		return "0"
	}
	rate := float64(h.Count) / g.over.Seconds()
	return graph.PerSecond(&rate)
}

func (g *gained) rate(series string) string {
	n, known := g.counter(series)
	if !known {
		return nothing
	}
	rate := n / g.over.Seconds()
	return graph.BytesPerSecond(&rate)
}

func (g *gained) perSecond(series string) string {
	n, known := g.counter(series)
	if !known {
		return nothing
	}
	rate := n / g.over.Seconds()
	return graph.PerSecond(&rate)
}

func plainText(n float64) string { return fmt.Sprintf("%.0f", n) }
