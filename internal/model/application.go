package model

import (
	"math"
	"strconv"
	"strings"
)

// ApplicationPrefix begins the names of applications' own metrics, and of no others.
const ApplicationPrefix = "app_"

// ApplicationFine is how many of Count of a fine counter are one of what the application counts.
const ApplicationFine = 1e9

// ApplicationKey tells the metrics of a container's applications apart.
type ApplicationKey struct {
	// Name under which it is stored: ApplicationPrefix and the application's name, and "_total" at the end of a counter's.
	Name string
	// Labels as LabelText writes them.
	Labels string
	// Kind is Counter or Gauge.
	Kind SeriesKind
	// Fine counters have fractions: they are floats in the application.
	Fine bool
}

// ApplicationMetric is a metric that the processes of a container have defined themselves, the sum over all of them.
type ApplicationMetric struct {
	ApplicationKey
	Unit, Help string
	// Count of a counter, since the agent began to read it and with what it had counted before; Level of a gauge.
	Count uint64
	Level float64
}

// Unbounded says that the metric is no finite number, which a sum of finite ones may be.
func (m *ApplicationMetric) Unbounded() bool { return math.IsInf(m.Level, 0) || math.IsNaN(m.Level) }

// LabelText is labels as one text, name="value" in turn, in the order of the labels; ParseLabelText reads it.
func LabelText(labels []Label) string {
	var b strings.Builder
	for i, l := range labels {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l.Name + "=" + strconv.Quote(l.Value))
	}
	return b.String()
}

// ParseLabelText reads what LabelText has written; false where it is something else.
func ParseLabelText(text string) (labels []Label, ok bool) {
	for text != "" {
		name, rest, found := strings.Cut(text, "=")
		quoted, err := strconv.QuotedPrefix(rest)
		if !found || name == "" || err != nil {
			return nil, false
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, false
		}
		labels = append(labels, Label{Name: name, Value: value})
		if text = rest[len(quoted):]; text != "" {
			if text[0] != ',' || len(text) == 1 {
				return nil, false
			}
			text = text[1:]
		}
	}
	return labels, true
}
