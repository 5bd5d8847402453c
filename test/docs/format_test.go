package docs

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"outsight/internal/export"
	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/monotonic"
	"outsight/internal/otlp"
	"outsight/internal/queue"
	"outsight/internal/recorder"
)

// rows are the rows of the tables on a page of docs/format that begin with these columns, cell by cell.
func rows(t *testing.T, page string, columns ...string) (found [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(formatPages, page))
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `*")
		}
		switch {
		case len(cells) >= len(columns) && slices.Equal(cells[:len(columns)], columns):
			inside = true
		case inside && cells[0] != "---":
			found = append(found, cells)
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no table %v", page, columns)
	}
	return found
}

// TestSpoolPage decodes a real file of a spool by the table of docs/format/spool.md.
func TestSpoolPage(t *testing.T) {
	dir := t.TempDir()
	s, err := export.OpenSpool(dir, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	batches := []export.Batch{{Name: "life/000000000001", Samples: 12345, Data: []byte("first")},
		{Name: "another-life/000000000002", Samples: 7, Data: bytes.Repeat([]byte{0xfe}, 1000)}}
	for _, b := range batches {
		if err := s.Put(b); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(filepath.Join(dir, "000000000001.spool"))
	if err != nil {
		t.Fatal(err)
	}
	fields := rows(t, "spool.md", "offset", "size", "type", "field")
	for _, want := range batches {
		numbers, texts := map[string]uint64{}, map[string][]byte{}
		m, n := 0, 0
		value := func(text string) (sum int) {
			for term := range strings.SplitSeq(text, "+") {
				switch term = strings.Trim(term, " *"); term {
				case "m":
					sum += m
				case "n":
					sum += n
				default:
					number, err := strconv.Atoi(term)
					if err != nil {
						t.Fatal(err)
					}
					sum += number
				}
			}
			return sum
		}
		end := 0
		for _, f := range fields {
			offset, size := value(f[0]), value(f[1])
			end = offset + size
			raw := file[offset:end]
			switch f[2] {
			case "u16":
				numbers[f[3]] = uint64(binary.LittleEndian.Uint16(raw))
			case "u32":
				numbers[f[3]] = uint64(binary.LittleEndian.Uint32(raw))
			case "bytes":
				texts[f[3]] = raw
			default:
				t.Fatalf("type %s", f[2])
			}
			m, n = int(numbers["name length"]), int(numbers["payload length"])
		}
		if string(texts["name"]) != want.Name || !bytes.Equal(texts["payload"], want.Data) ||
			numbers["samples"] != want.Samples {
			t.Errorf("%q with %d samples and %d bytes, want %q", texts["name"], numbers["samples"],
				len(texts["payload"]), want.Name)
		}
		if sum := crc32.Checksum(file[8:end], crc32.MakeTable(crc32.Castagnoli)); uint64(sum) != numbers["checksum"] {
			t.Errorf("checksum %x, want %x", numbers["checksum"], sum)
		}
		file = file[end:]
	}
	if len(file) > 0 {
		t.Errorf("%d bytes are left", len(file))
	}
}

// oneTick is a kernel that makes one tick.
type oneTick struct {
	tick      *model.Tick
	container model.Container
}

func (o *oneTick) Interval() time.Duration                { return 50 * time.Millisecond }
func (o *oneTick) Losses() model.TickLosses               { return model.TickLosses{} }
func (o *oneTick) Ignore(model.CgroupID)                  {}
func (o *oneTick) Lookup(model.CgroupID) *model.Container { return &o.container }
func (o *oneTick) Containers() []*model.Container         { return []*model.Container{&o.container} }
func (o *oneTick) Drain(take func(*model.Tick)) error {
	if o.tick != nil {
		take(o.tick)
		o.tick = nil
	}
	return nil
}

// TestFlightPage decodes a block of a real flight recorder by the tables of docs/format/flight.md.
func TestFlightPage(t *testing.T) {
	names := rows(t, "flight.md", "bit", "field")
	sample := model.TickSample{Group: 10, HasMemory: true, HasThrottled: true, HasDisk: true}
	want := map[string]uint64{"flags": 7}
	for i, row := range names {
		if row[0] != fmt.Sprint(i) {
			t.Errorf("row %d is of bit %s", i, row[0])
		}
		if row[1] == "flags" {
			continue
		}
		field := reflect.ValueOf(&sample).Elem().FieldByName(row[1])
		if !field.IsValid() {
			t.Fatalf("a sample has no %s", row[1])
		}
		want[row[1]] = uint64(1000 + i)
		field.SetUint(want[row[1]])
	}
	if missing := reflect.TypeFor[model.TickSample]().NumField() - 4 - len(want) + 1; missing != 0 {
		t.Errorf("a sample has %d fields that are not on the page", missing)
	}
	now := monotonic.Now()
	source := &oneTick{container: model.Container{ID: "web", Name: "web", Cgroup: 10},
		tick: &model.Tick{Number: 41, DueNS: now, BeganNS: now + 17, CostNS: 23, Samples: []model.TickSample{sample}}}
	var data *recorder.FlightData
	synctest.Test(t, func(t *testing.T) {
		flight := recorder.NewFlight(source, source, recorder.FlightOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- flight.Run(ctx) }()
		time.Sleep(time.Second) // of the bubble's clock: the recorder has looked
		synctest.Wait()
		data = flight.Data(time.Minute)
		cancel()
		<-ended
	})
	if len(data.Blocks) != 1 || len(data.Blocks[0].Targets) != 1 || data.Blocks[0].FirstNumber != 41 ||
		data.Blocks[0].FirstDueNS != now {
		t.Fatalf("%+v", data)
	}
	rest := data.Blocks[0].Data
	number := func() uint64 {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			t.Fatal("the block ends early")
		}
		rest = rest[n:]
		return v
	}
	for _, f := range rows(t, "flight.md", "field", "type", "what it is") {
		expected := map[string]uint64{"number": 0, "lateness": 17, "cost": 23, "changes": 1, "target": 0,
			"mask": 1<<len(names) - 1}
		if v, known := expected[f[0]]; known {
			if got := number(); f[1] != "uvarint" || got != v {
				t.Errorf("%s (%s) is %d, want %d", f[0], f[1], got, v)
			}
		}
	}
	for _, row := range names {
		v, n := binary.Varint(rest)
		if rest = rest[max(n, 0):]; n <= 0 || uint64(v) != want[row[1]] {
			t.Errorf("%s is %d, want %d", row[1], v, want[row[1]])
		}
	}
	if len(rest) > 0 {
		t.Errorf("%d bytes are left", len(rest))
	}
}

// refusingStore stores nothing that it is asked to: each message becomes a dead letter.
type refusingStore struct{}

func (refusingStore) Append(context.Context, []model.Series) error { panic("nothing can be stored") }
func (refusingStore) AppendPart(context.Context, []model.Series) error {
	panic("nothing can be stored")
}
func (refusingStore) Sync() error { return nil }

// TestQueuePage compares the headers of docs/format/queue.md with those of a message in the queue and of one that is a
// dead letter.
func TestQueuePage(t *testing.T) {
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	embedded, err := ingest.Embed(dir, 512<<20, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	conn, err := embedded.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q, err := queue.Open(t.Context(), conn, queue.Options{MaxBytes: 1 << 20, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	named := func(series []model.Series) []model.Series {
		named := slices.Clone(series)
		for i := range named {
			named[i].Labels = append(slices.Clip(named[i].Labels), model.Label{Name: "pod", Value: "web-1"})
		}
		return named
	}
	in, err := ingest.New(q, refusingStore{}, ingest.Options{Dir: dir, Logger: quiet, Tenants: true, Name: named})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	body := otlp.Encode(nil, []model.Series{{Name: otlp.Metrics()[0].Name, Time: now, Value: 1,
		Labels: []model.Label{{Name: "host", Value: "h"}}}})
	r := httptest.NewRequest(http.MethodPost, "/v1/metrics", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set(otlp.TenantHeader, "acme")
	r.Header.Set(otlp.BatchHeader, fmt.Sprintf("life/%0*d", otlp.BatchNumberDigits, 1))
	answer := httptest.NewRecorder()
	in.Handler().ServeHTTP(answer, r)
	if answer.Code != http.StatusOK {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	message := func(stream string) nats.Header {
		t.Helper()
		s, err := js.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			if m, err := s.GetMsg(ctx, 1); err == nil {
				return m.Header
			} else if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	kept := message("OUTSIGHT")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- in.Run(ctx) }()
	dead := message("OUTSIGHT-ASIDE")
	cancel()
	<-ended
	var want, got []string
	for _, row := range rows(t, "queue.md", "header", "when") {
		want = append(want, row[0])
	}
	for _, header := range []nats.Header{kept, dead} {
		for name := range header {
			// Others of NATS say where the message was found.
			if name == jetstream.MsgIDHeader || !strings.HasPrefix(name, "Nats-") {
				got = append(got, name)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	got = slices.Compact(got)
	if !slices.Equal(got, want) {
		t.Errorf("headers %v, the page has %v", got, want)
	}
}

// TestHistogramPage compares the numbers of docs/format/histogram.md with those of the model.
func TestHistogramPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(formatPages, "histogram.md"))
	if err != nil {
		t.Fatal(err)
	}
	last := int(model.MaxBucket - model.MinBucket + 1)
	cells := int(readObjects(t).records["histogram"].Size) / 8
	for _, want := range []string{
		fmt.Sprintf("cell      0          1            2 +%d +%d +%d ... %d\n", last, last+1, last+2, cells-1),
		fmt.Sprintf(`\(1 to %d\)`, last), fmt.Sprintf("≤ %d ns", model.ZeroThreshold.Nanoseconds()),
	} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("docs/format/histogram.md does not say %q", want)
		}
	}
	if model.OverflowThreshold != 1<<36 {
		t.Errorf("the last cell begins at %v, not at 2^36 ns", model.OverflowThreshold)
	}
}
