package api

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// maxEnded bounds the containers that ended in a window and are shown in it. Their ids must fit
// into one query.
const maxEnded = 200

// readEnded adds the last values of what ended in the window, so that a container that lived for
// a moment is counted, and one that lived longer is counted to its end.
func (s *server) readEnded(ctx context.Context, data *windowData) error {
	to, window := data.input.To, data.input.To.Sub(data.observed)
	over := fmt.Sprintf("[%dms]", max(window.Milliseconds(), 1))
	known, err := s.querier.Instant(ctx, fmt.Sprintf("last_over_time(%s%s)", otlp.ContainerInfo, over), to)
	if err != nil {
		return fmt.Errorf("reading which containers ended: %w", err)
	}
	ids := endedIDs(known, data.input)
	if len(ids) > maxEnded {
		data.endedOmitted = len(ids) - maxEnded
		ids = ids[:maxEnded]
	}
	if len(ids) == 0 {
		return nil
	}
	for i, id := range ids {
		ids[i] = regexp.QuoteMeta(id)
	}
	one := strconv.Quote(strings.Join(ids, "|"))
	for _, label := range []string{otlp.LabelID, otlp.LabelClientID, otlp.LabelServerID} {
		query := fmt.Sprintf("last_over_time(%s,%s=~%s}%s)", strings.TrimSuffix(windowQuery, "}"), label, one, over)
		results, err := s.querier.Instant(ctx, query, to)
		if err != nil {
			return fmt.Errorf("reading the last values of %d containers that ended: %w", len(ids), err)
		}
		data.addEnded(results)
	}
	return nil
}

// endedIDs are the known containers without a value at the end of the window.
func endedIDs(known []model.QueryResult, in graph.Input) []string {
	runs := map[string]bool{}
	for _, r := range in.Series {
		if r.Field == graph.Info && len(r.Points) > 0 && !r.Points[len(r.Points)-1].Time.Before(in.To) {
			runs[r.Labels[otlp.LabelID]] = true
		}
	}
	var ids []string
	for _, r := range known {
		if id := r.Labels[otlp.LabelID]; !runs[id] {
			ids = append(ids, id)
			runs[id] = true // another set of labels of the same container is no second one
		}
	}
	slices.Sort(ids)
	return ids
}

// addEnded adds last values as points shortly before the window's end: at the end they would mean that the series goes
// on.
func (d *windowData) addEnded(results []model.QueryResult) {
	named := make([]model.NamedResult, len(results))
	for i, r := range results {
		for j := range r.Points {
			r.Points[j].Time = d.input.To.Add(-time.Millisecond)
		}
		named[i] = r.TakeName()
	}
	d.add([][]model.NamedResult{named})
}
