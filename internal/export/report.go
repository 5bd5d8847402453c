package export

import (
	"time"

	"outsight/internal/model"
)

// setError sets the result of the last attempt, and logs it when it changes.
func (e *Exporter) setError(err error) {
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	switch before := e.state.err; {
	case err == nil && before != nil:
		e.options.Logger.Info("the server accepts batches again", "server", e.url, "after",
			time.Since(e.state.since).Round(time.Second))
	case err != nil && (before == nil || before.Error() != err.Error()):
		if before == nil {
			e.state.since = time.Now()
		}
		e.options.Logger.Warn("sending failed: batches stay in the spool", "error", err)
	}
	e.state.err = err
}

// Error is that of the last attempt to send, nil if it succeeded.
func (e *Exporter) Error() error {
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	return e.state.err
}

// Features implements agent.Reporter.
func (e *Exporter) Features() []model.Feature {
	f := model.Feature{Name: e.to(), Purpose: "sending what is seen to a server", State: model.FeatureWorks}
	if err := e.Error(); err != nil {
		f.State, f.Reason = model.FeatureAbsent, err.Error()
		f.Remedy = "start the server at " + e.url +
			", or correct --server, --token-file and the certificates; batches stay in the spool until then"
	}
	return []model.Feature{f}
}

// Drops implements agent.Reporter.
func (e *Exporter) Drops() []model.Drop {
	s, prefix := e.spool.Stats(), "export/"
	if e.options.OTLP {
		prefix = "export-otlp/"
	}
	return []model.Drop{
		{Name: prefix + "spool-bytes", Count: s.DroppedBatches, Used: uint64(s.Bytes), Capacity: uint64(s.MaxBytes)},
		{Name: prefix + "spool-batches", Used: s.Batches},
		{Name: prefix + "spool-dropped-samples", Count: s.DroppedSamples},
		{Name: prefix + "spool-damaged-files", Count: s.Damaged},
		{Name: prefix + "unwritten-batches", Count: e.counts.unwritten.Load()},
		{Name: prefix + "refused-batches", Count: e.counts.refused.Load()},
		{Name: prefix + "rejected-samples", Count: e.counts.rejected.Load()},
		// Frames whose key frame was lost.
		{Name: prefix + "keyless-frames", Count: e.counts.keyless.Load()},
		{Name: prefix + "retries", Count: e.counts.retries.Load()},
	}
}

// to is what the destination is called.
func (e *Exporter) to() string {
	if e.options.OTLP {
		return "otlp"
	}
	return "server"
}

// Stats counts batches and samples since Open.
type Stats struct {
	Batches, Samples, Sent, Retries, Refused, Rejected uint64
	// Keyless frames were not sent because their key frame was lost.
	Keyless uint64
	Spool   SpoolStats
}

// Stats returns the counts.
func (e *Exporter) Stats() Stats {
	return Stats{
		Batches: e.counts.batches.Load(), Samples: e.counts.samples.Load(), Sent: e.counts.sent.Load(),
		Retries: e.counts.retries.Load(), Keyless: e.counts.keyless.Load(),
		Refused: e.counts.refused.Load(), Rejected: e.counts.rejected.Load(), Spool: e.spool.Stats(),
	}
}
