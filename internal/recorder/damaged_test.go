package recorder

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/model"
	"outsight/internal/report"
)

// keptAnomaly is the file of an anomaly.
func keptAnomaly(t testing.TB) []byte {
	t.Helper()
	s, o := newService(), FlightOptions{Anomalies: AnomalyOptions{Detect: report.Anomalies, Directory: t.TempDir()}}
	f := NewFlight(s, s, o)
	s.answers(300)
	s.stands(4)
	s.answers(50)
	f.drain()
	f.scan(s.at(s.next))
	f.save(true)
	text, err := os.ReadFile(filepath.Join(o.Anomalies.Directory, "1.json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// numbered is the file with another number.
func numbered(text []byte, number string) []byte {
	return bytes.Replace(text, []byte(`"Number":1,`), []byte(`"Number":`+number+`,`), 1)
}

// Files of anomalies that are damaged are reported, each costs itself alone, and nothing in them ends the agent.
func TestDamagedAnomalies(t *testing.T) {
	good := keptAnomaly(t)
	f := func(name string, text []byte) {
		t.Helper()
		dir := t.TempDir()
		for file, content := range map[string][]byte{"1.json": good, "2.json": text, "3.json": numbered(good, "3")} {
			if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := newService()
		flight := NewFlight(s, s, FlightOptions{Anomalies: AnomalyOptions{Detect: report.Anomalies, Directory: dir}})
		a := flight.Anomalies()
		if len(a.List) != 2 || a.List[0].Number != 1 || a.List[1].Number != 3 || !strings.Contains(a.Problem, "2.json") {
			t.Errorf("%s: %+v", name, a)
		}
		for _, number := range []uint64{1, 3} {
			if _, err := flight.Anomaly(number).Write(time.Time{}, Options{Create: sheets{}.create}); err != nil {
				t.Errorf("%s: anomaly %d: %v", name, number, err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "2.json")); err != nil {
			t.Errorf("%s: the file is gone: %v", name, err)
		}
	}
	two := numbered(good, "2")
	f("empty", nil)
	f("null", []byte("null"))
	f("truncated", two[:len(two)/2])
	f("flipped", bytes.Replace(two, []byte(`"Blocks"`), []byte(`"Blocks`+"\x00"), 1))
	f("no interval", bytes.Replace(two, []byte(`"Interval":`), []byte(`"Interval":-`), 1))
	f("huge interval", bytes.Replace(two, []byte(`"Interval":`), []byte(`"Interval":99999999999`), 1))
	f("a target without a container", bytes.Replace(two, []byte(`"Targets":[`), []byte(`"Targets":[{},`), 1))
	f("another number", numbered(good, "18446744073709551615"))
	f("huge", append(bytes.Clone(two), bytes.Repeat([]byte{' '}, maxAnomalyFile)...))
}

func FuzzAnomaly(f *testing.F) {
	good := keptAnomaly(f)
	f.Add(good)
	f.Add([]byte(`{"Number":1,"Data":{"Interval":1,"Blocks":[{"Targets":[{}]}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "1.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		s := newService()
		detect := func(_ []*csvy.Recording) []model.Anomaly { return nil }
		flight := NewFlight(s, s, FlightOptions{Anomalies: AnomalyOptions{Detect: detect, Directory: dir}})
		for _, a := range flight.Anomalies().List {
			_, _ = flight.Anomaly(a.Number).Write(time.Time{}, Options{Create: sheets{}.create})
		}
	})
}
