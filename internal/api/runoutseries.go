package api

import (
	"context"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/predict"
)

// Values of the label bound.
const (
	boundExpected = "expected"
	boundEarliest = "earliest"
	boundLatest   = "latest"
)

// RunOutSeries makes the series of what runs out for a tenant, "" without tenants, at a time: what a request for
// /api/outsight/runout without parameters tells then. They have no time. Of the options those are used that are about
// frames.
func RunOutSeries(o Options) func(ctx context.Context, tenant string, now time.Time) ([]model.Series, error) {
	return seriesOfFrames(o, func(ctx context.Context, s *server, to time.Time) ([]model.Series, error) {
		answer, err := s.runOuts(ctx, to.Add(-runOutLength), to, usualPoints)
		if err != nil {
			return nil, err
		}
		var all []model.Series
		for i := range answer.Resources {
			all = appendRunOut(all, &answer.Resources[i])
		}
		return all, nil
	})
}

// seriesOfFrames makes series for a tenant at a time out of what requests are answered of: compute is given a server of that
// tenant for which it is that time.
func seriesOfFrames(o Options, compute func(ctx context.Context, s *server, now time.Time) ([]model.Series, error)) func(
	ctx context.Context, tenant string, now time.Time) ([]model.Series, error) {
	return func(ctx context.Context, tenant string, now time.Time) ([]model.Series, error) {
		view := o
		view.Tenant, view.Now = tenant, func() time.Time { return now }
		ctx, held := hold(ctx)
		defer held.release()
		return compute(ctx, newServer(view), now.Truncate(time.Millisecond))
	}
}

// appendRunOut adds the series of one resource.
func appendRunOut(all []model.Series, b *predict.Bounded) []model.Series {
	base := []model.Label{model.NewLabel(otlp.LabelName, b.Name), model.NewLabel(model.ResourceLabel, string(b.Kind))}
	if b.Host != "" {
		base = append(base, model.NewLabel(otlp.LabelHost, b.Host))
	}
	if b.Node != "" {
		base = append(base, model.NewLabel(otlp.LabelID, b.Node))
	}
	gauge := func(name string, v float64, extra ...model.Label) {
		all = append(all, model.Series{Name: name, Kind: model.Gauge, Value: v,
			Labels: model.SortedLabels(append(extra, base...)...)})
	}
	gauge(model.RunOutUsed, b.Used/b.Capacity)
	if b.RunsOut == nil {
		return all
	}
	for _, of := range []struct {
		bound string
		at    *time.Time
	}{{boundExpected, b.RunsOut.At}, {boundEarliest, b.RunsOut.Earliest}, {boundLatest, b.RunsOut.Latest}} {
		if of.at != nil {
			gauge(model.RunOutTime, float64(of.at.UnixMilli())/1e3, model.NewLabel(model.BoundLabel, of.bound))
		}
	}
	return all
}
