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
func (s accountedStore) Room(string) (series, labelBytes int64)         { return s.room, 1 << 40 }
func (accountedStore) Fresh([]model.Series, int64, int64) store.Fresh {
	return store.Fresh{Unknown: true}
}

func claimOf(t *testing.T, r *room, id string, series int) {
	t.Helper()
	c, short := r.claim("a", make([]model.Series, series), 0)
	if short.series > 0 || !c.keep(id) {
		t.Errorf("message %s has no claim: %+v", id, short)
	}
}

// While the store cannot tell which series are new, all of a request are claimed.
func TestUnknownSeriesAreClaimed(t *testing.T) {
	var r room
	r.init(accountedStore{room: 20})
	claimOf(t, &r, "1", 15)
	if got := r.of("a").unknown; got != 15 {
		t.Errorf("%d are claimed, want 15", got)
	}
	r.done("1")
	if len(r.tenants)+len(r.waiting) != 0 {
		t.Errorf("got %+v, %+v", r.tenants, r.waiting)
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
		claimOf(t, &i.room, id, 10)
	}
	i.room.published("1", 1)
	i.room.published("3", 3)
	i.room.published("4", 4)
	third := &queue.Delivery{Sequence: 3, Lost: 2, Header: func(name string) string {
		if name == headerID {
			return "3"
		}
		return ""
	}}
	if err := i.deal(t.Context(), []*queue.Delivery{third}); err != nil {
		t.Fatal(err)
	}
	i.room.published("2", 2)
	if got := *i.room.of("a"); got.unknown != 10 || len(i.room.waiting) != 1 || i.room.waiting["4"] == nil {
		t.Errorf("claims are %+v, of %d messages; want those of the fourth", got, len(i.room.waiting))
	}
}
