package report

import (
	"outsight/internal/csvy"
	"outsight/internal/model"
)

// Anomalies are the short saturations in recordings of one host because of which something waited,
// in order of time. It leaves out what else a report has, and so takes a fraction of Analyse's time.
func Anomalies(recordings []*csvy.Recording) []model.Anomaly {
	r := &Report{lines: timelines(recordings)}
	r.aboutHost()
	r.grid = gridOf(r.lines)
	r.find(Options{}.withDefaults())
	var found []model.Anomaly
	for _, s := range r.Saturations {
		if s.Waited <= 0 {
			continue
		}
		a := model.Anomaly{Resource: string(s.Kind), Container: s.Container, ID: s.ID, From: s.From, To: s.To,
			WaitedMS: s.Waited, Text: s.Text}
		for _, e := range s.Effects {
			a.Effects = append(a.Effects, e.Text)
		}
		found = append(found, a)
	}
	return found
}
