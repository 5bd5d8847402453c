package model

// Names of the metrics that stand for applications' own. As series these have names of their own: the label "metric". The
// others are how the application describes it: its unit, its help, and its labels as LabelText writes them.
const (
	ApplicationCounters     = "container_application_total"
	ApplicationFineCounters = "container_application_seconds_total"
	ApplicationGauges       = "container_application"
)

var applicationLabels = []string{"metric", "labels", "unit", "help"}

// ApplicationRows are rows of a container that stand for applications' own metrics in frames. They are not in Metrics:
// no series has these names.
var ApplicationRows = []Row[ContainerSample]{
	{Name: ApplicationCounters, OTel: "container.application.count", Kind: Counter, Labels: applicationLabels,
		Help: "What an application counts itself in whole numbers",
		Each: applications(func(m *ApplicationMetric) (float64, bool) {
			return float64(m.Count), m.Kind == Counter && !m.Fine
		})},
	{Name: ApplicationFineCounters, OTel: "container.application.time", Unit: "s", Kind: Counter,
		Labels: applicationLabels,
		Help:   "What an application counts itself with fractions, times in seconds for the most part",
		Each: applications(func(m *ApplicationMetric) (float64, bool) {
			return float64(m.Count) / ApplicationFine, m.Kind == Counter && m.Fine
		})},
	{Name: ApplicationGauges, OTel: "container.application.level", Kind: Gauge, Labels: applicationLabels, Real: true,
		Help: "What an application says of its present state",
		Each: applications(func(m *ApplicationMetric) (float64, bool) { return m.Level, m.Kind == Gauge })},
}

func applications(value func(*ApplicationMetric) (float64, bool)) func(*ContainerSample, *Sink) {
	return func(s *ContainerSample, to *Sink) {
		for i := range s.Applications {
			m := &s.Applications[i]
			if v, ok := value(m); ok {
				to.Add(v, NewLabel("metric", m.Name), NewLabel("labels", m.Labels), NewLabel("unit", m.Unit),
					NewLabel("help", m.Help))
			}
		}
	}
}

// IsApplication says that a metric stands for applications' own.
func IsApplication(metric string) bool {
	return metric == ApplicationCounters || metric == ApplicationFineCounters || metric == ApplicationGauges
}
