package ingest

import (
	"context"
	"testing"

	"outsight/internal/model"
	"outsight/internal/queue"
	"outsight/internal/store"
)

// accountedStore has room for a number of series, and cannot look which are new.
type accountedStore struct{ room int64 }

func (accountedStore) Append(context.Context, []model.Series) error     { return nil }
func (accountedStore) AppendPart(context.Context, []model.Series) error { return nil }
func (accountedStore) Sync() error                                      { return nil }
func (s accountedStore) Available(string) (series, labelBytes int64)    { return s.room, 1 << 40 }
func (accountedStore) CountNew([]model.Series, int64, int64) store.NewSeries {
	return store.NewSeries{Unknown: true}
}

func claimOf(t *testing.T, r *admission, id string, series int) {
	t.Helper()
	c, short := r.claim("a", make([]model.Series, series), 0)
	if short.series > 0 || !c.register(id) {
		t.Errorf("message %s has no claim: %+v", id, short)
	}
}

// While the store cannot tell which series are new, all of a request are claimed.
func TestUnknownSeriesAreClaimed(t *testing.T) {
	var r admission
	r.init(accountedStore{room: 20})
	claimOf(t, &r, "1", 15)
	if got := r.claimsOf("a").unchecked; got != 15 {
		t.Errorf("%d are claimed, want 15", got)
	}
	r.done("1")
	if len(r.tenants)+len(r.pending) != 0 {
		t.Errorf("got %+v, %+v", r.tenants, r.pending)
	}
}

// Claims of messages that the queue loses are given up with the next one that comes, also where the sender's side of
// them is late.
func TestClaimsOfLostMessages(t *testing.T) {
	i, err := New(nil, accountedStore{room: 1000}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2", "3", "4"} {
		claimOf(t, &i.admission, id, 10)
	}
	i.admission.published("1", 1)
	i.admission.published("3", 3)
	i.admission.published("4", 4)
	third := &queue.Delivery{Sequence: 3, Lost: 2, Header: func(name string) string {
		if name == headerID {
			return "3"
		}
		return ""
	}}
	if err := i.process(t.Context(), []*queue.Delivery{third}); err != nil {
		t.Fatal(err)
	}
	i.admission.published("2", 2)
	if got := *i.admission.claimsOf("a"); got.unchecked != 10 || len(i.admission.pending) != 1 ||
		i.admission.pending["4"] == nil {
		t.Errorf("claims are %+v, of %d messages; want those of the fourth", got, len(i.admission.pending))
	}
}
