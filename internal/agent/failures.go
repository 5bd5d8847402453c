package agent

import "log/slog"

// failures logs what fails once when it begins, and once when it is over.
type failures struct {
	logger *slog.Logger
	last   map[string]string
}

func newFailures(logger *slog.Logger) *failures {
	return &failures{logger: logger, last: make(map[string]string)}
}

// note says how an attempt ended.
func (f *failures) note(what string, err error) {
	before, failing := f.last[what]
	switch {
	case err == nil && failing:
		f.logger.Info("works again: " + what)
		delete(f.last, what)
	case err != nil && before != err.Error():
		f.logger.Warn("does not work, everything else goes on: "+what, "error", err)
		f.last[what] = err.Error()
	}
}
