package agent

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"outsight/internal/model"
)

// TestTranslationsAreReadForNewConnections: the host's table is looked at when edges need it and connections were
// tried since, at most every translationsEvery, and else rarely.
func TestTranslationsAreReadForNewConnections(t *testing.T) {
	looks, now := 0, time.Unix(1e9, 0)
	client, failure := "job-1", error(nil)
	service := netip.MustParseAddrPort("10.96.0.1:80")
	found := model.Translation{Dialled: service, Reached: netip.MustParseAddrPort("10.0.0.2:8080")}
	a := New(Sources{Translations: func(int) ([]model.Translation, error) {
		looks++
		if failure != nil {
			return nil, failure
		}
		return []model.Translation{found}, nil
	}}, Options{})
	read := func(what string, later time.Duration, opens, failures uint64, confidence model.Confidence, want int) {
		t.Helper()
		now = now.Add(later)
		edge := model.Edge{Transport: model.TCP, Confidence: confidence, Service: service}
		edge.Client.Container = &model.Container{ID: client}
		edge.Counters.Opens, edge.Counters.Failures = opens, failures
		told := a.readTranslations(now, []model.Edge{edge})
		if looks != want {
			t.Errorf("%s: looked %d times, want %d", what, looks, want)
		}
		if needed := confidence == model.NotFound; needed != (len(told) == 1 && told[0] == found) {
			t.Errorf("%s: told %v", what, told)
		}
	}
	read("its other end is known", time.Second, 7, 0, model.Exact, 0)
	read("needed for the first time", time.Second, 7, 0, model.NotFound, 1)
	read("new connections, too soon", translationsEvery-time.Second, 8, 0, model.NotFound, 1)
	read("these a little later", time.Second, 8, 0, model.NotFound, 2)
	read("no new connections", 2*translationsEvery, 8, 0, model.NotFound, 2)
	read("a connection that failed", time.Second, 8, 1, model.NotFound, 3)
	read("no new connections for long", translationsRarely, 8, 1, model.NotFound, 4)
	client = "job-2"
	read("another client, with as many", translationsEvery, 8, 1, model.NotFound, 5)
	failure = errors.New("no memory")
	read("a look that fails", translationsEvery, 9, 1, model.NotFound, 6)
	read("another try, too soon", time.Second, 9, 1, model.NotFound, 6)
	failure = nil
	read("another try", translationsEvery, 9, 1, model.NotFound, 7)
	read("which has seen these", translationsEvery, 9, 1, model.NotFound, 7)
}
