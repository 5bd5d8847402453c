package pull

import (
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/region"
)

var jobs = model.ApplicationKey{Name: "app_jobs_total", Labels: `kind="a"`, Kind: model.Counter}

// applicationReading is one of a container with a counter, which is missing where count is negative, and a gauge.
func applicationReading(number uint64, reader string, started time.Time, count int, level float64) *reading {
	r := &reading{Reader: reader, Number: number, Term: number, At: worldBegan.Add(time.Duration(number) * time.Second),
		EpochNS: uint64(worldBegan.UnixNano()), Host: "web1", HasApplications: true,
		Containers: []containerReading{{Container: model.Container{ID: "c", Name: "c", Runtime: model.Docker, Started: started}}}}
	if count >= 0 {
		r.Applications = append(r.Applications, region.ApplicationFigure{ApplicationMetric: model.ApplicationMetric{
			ApplicationKey: jobs, Unit: "{job}", Count: uint64(count)}})
	}
	if level != 0 {
		r.Applications = append(r.Applications, region.ApplicationFigure{ApplicationMetric: model.ApplicationMetric{
			ApplicationKey: model.ApplicationKey{Name: "app_load", Kind: model.Gauge}, Level: level}})
	}
	return r
}

// framed are the applications' metrics of a frame, by their name.
func framed(t *testing.T, f *frame.Frame) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	table := &f.Tables[frame.Labelled]
	for row := range table.IDs {
		metric := f.Text(frame.Labelled, frame.LabelledMetric, row)
		if level, ok := frame.LabelledLevel(table, row, 1); ok {
			all[metric] = level
		}
	}
	return all
}

// TestApplicationsOnlyGrow: a counter goes on when readings come late, when a container begins anew, when a reading has no
// applications, and when it is known already what there was.
func TestApplicationsOnlyGrow(t *testing.T) {
	m := newMaker(applicationReading(1, "a", worldBegan, 10, 1.5), earlier{})
	take := func(what string, r *reading, want int, level float64) {
		t.Helper()
		m.take(r)
		m.frame()
		var got []model.ApplicationMetric
		if c := m.containers["c"]; c != nil {
			got = c.applicationMetrics()
		}
		count, gauge := 0, 0.0
		for _, one := range got {
			if one.Kind == model.Counter {
				count = int(one.Count)
			} else {
				gauge = one.Level
			}
		}
		if count != want || gauge != level {
			t.Errorf("%s: %+v, want %d and %v", what, got, want, level)
		}
	}
	take("first", applicationReading(1, "a", worldBegan, 10, 1.5), 10, 1.5)
	take("more", applicationReading(2, "a", worldBegan, 30, 2.5), 30, 2.5)
	take("another reader's, of before", applicationReading(3, "b", worldBegan, 25, 2), 30, 2)
	take("the gauge's process has ended", applicationReading(4, "b", worldBegan, 31, 0), 31, 0)
	without := applicationReading(5, "b", worldBegan, -1, 0)
	without.HasApplications = false
	take("they could not be read", without, 31, 0)
	take("read again", applicationReading(6, "b", worldBegan, 40, 0), 40, 0)
	take("the container was started anew", applicationReading(7, "b", worldBegan.Add(7), 5, 1), 45, 1)
	take("and counts on", applicationReading(8, "b", worldBegan.Add(7), 6, 1), 46, 1)
	gone := applicationReading(9, "b", worldBegan, -1, 0)
	gone.Containers = nil
	take("the container is gone", gone, 0, 0)
	take("a reading of before has it still", applicationReading(10, "a", worldBegan.Add(7), 8, 1), 2, 1)
	take("a container of the same name later", applicationReading(11, "a", worldBegan.Add(7), 9, 1), 3, 1)

	// Frames of this life of the agent are stored: what was counted before is in them.
	m = newMaker(applicationReading(20, "a", worldBegan, 100, 1), earlier{known: true, time: worldBegan.Add(time.Second)})
	take("what is known", applicationReading(20, "a", worldBegan, 100, 1), 0, 1)
	take("and grows", applicationReading(21, "a", worldBegan, 103, 1), 3, 1)
	// And where they could not be read at first.
	late := applicationReading(30, "a", worldBegan, -1, 0)
	late.HasApplications = false
	m = newMaker(late, earlier{known: true, time: worldBegan.Add(time.Second)})
	take("not read at first", late, 0, 0)
	take("and then known", applicationReading(31, "a", worldBegan, 100, 1), 0, 1)
	take("and counted", applicationReading(32, "a", worldBegan, 104, 1), 4, 1)
}

// TestApplicationsInFrames: what is read is in the frame as an agent writes it.
func TestApplicationsInFrames(t *testing.T) {
	m := newMaker(applicationReading(1, "a", worldBegan, 10, 1.5), earlier{})
	m.take(applicationReading(1, "a", worldBegan, 10, 1.5))
	got := framed(t, m.frame())
	if got[model.ApplicationGauges] != 1.5 || got[model.ApplicationCounters] != 10 {
		t.Errorf("%v", got)
	}
	failed := applicationReading(2, "a", worldBegan, -1, 0)
	failed.HasApplications, failed.ApplicationsWhy = false, "no answer"
	m.take(failed)
	told := false
	f := m.frame()
	for row := range f.Tables[frame.Features].IDs {
		told = told || f.Text(frame.Features, frame.FeatureName, row) == "pull/applications" &&
			f.Text(frame.Features, frame.FeatureReason, row) == "no answer"
	}
	if !told {
		t.Error("the frame does not say that they could not be read")
	}
}

// TestApplicationsBetweenServers: a reading goes to other servers with them, and one of a container that is not there is
// refused.
func TestApplicationsBetweenServers(t *testing.T) {
	codec, err := newReadingCodec()
	if err != nil {
		t.Fatal(err)
	}
	r := applicationReading(1, "a", worldBegan, 10, 1.5)
	message, err := codec.encode(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := codec.decode(message)
	if err != nil || len(got.Applications) != 2 || got.Applications[0] != r.Applications[0] || !got.HasApplications {
		t.Errorf("%+v, %v", got, err)
	}
	r.Applications[1].Container = 1
	if message, err = codec.encode(r); err != nil {
		t.Fatal(err)
	}
	if _, err := codec.decode(message); err == nil {
		t.Error("a metric of no container is taken")
	}
}
