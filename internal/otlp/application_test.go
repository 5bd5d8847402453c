package otlp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// withApplications is a snapshot of two containers with metrics of their own.
func withApplications(at time.Time, counted uint64) *model.Snapshot {
	metric := func(name, labels string, kind model.SeriesKind) model.ApplicationMetric {
		return model.ApplicationMetric{ApplicationKey: model.ApplicationKey{Name: name, Labels: labels, Kind: kind},
			Unit: "{job}", Help: `What "it" does`, Count: counted, Level: -0.25}
	}
	fine := metric("app_seconds_total", "", model.Counter)
	fine.Fine, fine.Count = true, 2_500_000_000
	s := &model.Snapshot{Time: at, Host: model.Host{Name: "web-1", Cores: 2}}
	for _, name := range []string{"cart", "shop"} {
		s.Containers = append(s.Containers, model.ContainerSample{
			Container: &model.Container{ID: name, Name: name, Runtime: model.Docker},
			Applications: []model.ApplicationMetric{
				metric("app_jobs_total", `host="mine",method="GET \"a\""`, model.Counter),
				metric("app_jobs_total", `method="PUT"`, model.Counter), fine, metric("app_load", "", model.Gauge)}})
	}
	return s
}

const applicationText = `# HELP app_jobs_total What 'it' does
# TYPE app_jobs_total counter
app_jobs_total{exported_host="mine",host="web-1",id="cart",method="GET \"a\"",name="cart",runtime="docker"} 7
app_jobs_total{host="web-1",id="cart",method="PUT",name="cart",runtime="docker"} 7
app_jobs_total{exported_host="mine",host="web-1",id="shop",method="GET \"a\"",name="shop",runtime="docker"} 7
app_jobs_total{host="web-1",id="shop",method="PUT",name="shop",runtime="docker"} 7
# HELP app_load What 'it' does
# TYPE app_load gauge
app_load{host="web-1",id="cart",name="cart",runtime="docker"} -0.25
app_load{host="web-1",id="shop",name="shop",runtime="docker"} -0.25
# HELP app_seconds_total What 'it' does
# TYPE app_seconds_total counter
app_seconds_total{host="web-1",id="cart",name="cart",runtime="docker"} 2.5
app_seconds_total{host="web-1",id="shop",name="shop",runtime="docker"} 2.5
`

// Applications' metrics go through frames, encoded ones too, to series with the names and labels that they chose.
func TestApplications(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	f := frame.Of(withApplications(at, 7))
	decoded, err := frame.Decode(frame.Encode(nil, f, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*frame.Frame{f, decoded} {
		var b bytes.Buffer
		if err := WriteMetrics(&b, f, false); err != nil {
			t.Fatal(err)
		}
		_, got, _ := strings.Cut(b.String(), "# HELP app_")
		if got = "# HELP app_" + got; got != applicationText {
			t.Errorf("got\n%swant\n%s", got, applicationText)
		}
	}
}

// As sparse series they have keys of their own, and a start.
func TestSparseApplications(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	b, series := frame.NewBuilder(at), SparseSeries(SeriesOptions{})
	series(b.Build(withApplications(at, 0)))
	keys := map[uint64]string{}
	counters := 0
	for _, s := range series(b.Build(withApplications(at.Add(15*time.Second), 5))) {
		if !isApplication(&s) {
			continue
		}
		if other, twice := keys[s.Key]; twice {
			t.Errorf("%s%v has the key of %s", s.Name, s.Labels, other)
		}
		keys[s.Key] = fmt.Sprint(s.Name, s.Labels)
		if s.Name == "app_jobs_total" {
			counters++
			if s.Value != 5 || !s.Start.Equal(at) || s.Kind != model.Counter {
				t.Errorf("%+v", s)
			}
		}
	}
	if len(keys) != 8 || counters != 4 {
		t.Errorf("%d series, %d of them app_jobs_total", len(keys), counters)
	}
}
