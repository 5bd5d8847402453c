package otlp

import (
	"slices"
	"strings"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// Labels of the rows that stand for applications' own metrics, in the order of the registry.
const (
	applicationName = frame.LabelledLabels + iota
	applicationLabels
	_
	applicationHelp
)

// exported begins a label of an application that has the name of one that Outsight gives, as Prometheus does it.
const exported = "exported_"

// applicationRow gives a row the name and the labels that the application has chosen. A row that is not of this form,
// which no agent makes, has no series.
func (m *maker) applicationRow(r, owner *row, i int) {
	name := m.text(frame.Labelled, applicationName, i)
	own, ok := model.ParseLabelText(m.text(frame.Labelled, applicationLabels, i))
	if !ok || !strings.HasPrefix(name, model.ApplicationPrefix) {
		return
	}
	all := slices.Clone(owner.labels)
	for _, l := range own {
		for slices.ContainsFunc(all, func(k model.Label) bool { return k.Name == l.Name }) {
			l.Name = exported + l.Name
		}
		all = append(all, model.NewLabel(l.Name, l.Value))
	}
	r.name, r.labels, r.start = name, model.SortedLabels(all...), owner.start
}

func isApplication(s *model.Series) bool { return strings.HasPrefix(s.Name, model.ApplicationPrefix) }

// applicationsLast are all series, with those of applications at the end, in order of their names; own is their number.
func applicationsLast(all []model.Series) (_ []model.Series, own int) {
	var last []model.Series
	for i := range all {
		if isApplication(&all[i]) {
			last = append(last, all[i])
		}
	}
	if len(last) == 0 {
		return all, 0
	}
	slices.SortStableFunc(last, func(a, b model.Series) int { return strings.Compare(a.Name, b.Name) })
	others := make([]model.Series, 0, len(all))
	for i := range all {
		if !isApplication(&all[i]) {
			others = append(others, all[i])
		}
	}
	return append(others, last...), len(last)
}

// applicationHelps are what applications say of their metrics, by name: the first one of each says it.
func applicationHelps(f *frame.Frame) map[string]string {
	helps := map[string]string{}
	if f == nil {
		return helps
	}
	for i := range f.Tables[frame.Labelled].IDs {
		if !model.IsApplication(f.Text(frame.Labelled, frame.LabelledMetric, i)) {
			continue
		}
		if name := f.Text(frame.Labelled, applicationName, i); helps[name] == "" {
			helps[name] = strings.ReplaceAll(f.Text(frame.Labelled, applicationHelp, i), `"`, "'")
		}
	}
	return helps
}
