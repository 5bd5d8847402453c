package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/access"
	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// keeper is a store of either kind.
type keeper interface {
	store.Readable
	Append(context.Context, []model.Series) error
}

// marked is a batch of the shop in which everything names its tenant, with the tenant's label.
func marked(batch []model.Series, tenant string) []model.Series {
	marked := slices.Clone(batch)
	for i := range marked {
		s := &marked[i]
		s.Labels = slices.Clone(s.Labels)
		for j, l := range s.Labels {
			switch l.Name {
			case otlp.LabelID, otlp.LabelName, "client", "client_id", "server", "server_id", "service", "image":
				s.Labels[j].Value = tenant + "-" + l.Value
			}
		}
		s.Labels = append(s.Labels, model.Label{Name: store.TenantLabel, Value: tenant})
		slices.SortFunc(s.Labels, func(a, b model.Label) int { return strings.Compare(a.Name, b.Name) })
	}
	return append(marked, model.Series{Name: "only_" + tenant, Kind: model.Gauge, Time: batch[0].Time, Value: 1,
		Labels: []model.Label{{Name: "host", Value: "shop-1"}, {Name: "of_" + tenant, Value: "x"},
			{Name: store.TenantLabel, Value: tenant}}})
}

// markedSnapshot is a snapshot in which every container and edge names its tenant.
func markedSnapshot(s *model.Snapshot, tenant string) *model.Snapshot {
	all := map[*model.Container]*model.Container{}
	mark := func(c *model.Container) *model.Container {
		if c == nil {
			return nil
		}
		if all[c] == nil {
			one := *c
			if c.ID != model.HostContainerID {
				one.ID = tenant + "-" + c.ID
			}
			one.Name, one.Image = tenant+"-"+c.Name, tenant+"-"+c.Image
			all[c] = &one
		}
		return all[c]
	}
	marked := *s
	marked.Containers, marked.Edges = slices.Clone(s.Containers), slices.Clone(s.Edges)
	for i := range marked.Containers {
		marked.Containers[i].Container = mark(marked.Containers[i].Container)
	}
	for i := range marked.Edges {
		e := &marked.Edges[i]
		e.Client.Container, e.Server.Container = mark(e.Client.Container), mark(e.Server.Container)
	}
	return &marked
}

// ways are requests of the tenant mine that try to read what is theirs. All are answered.
func ways(mine, theirs string, now time.Time) (paths []string) {
	at := fmt.Sprint(now.Unix())
	for _, q := range []string{
		`{__name__=~".+"}`, `{__name__!=""}`, `{tenant=~".+"}`, `{tenant="` + theirs + `"}`, `{tenant="` + theirs +
			`",tenant="` + mine + `"}`,
		`{tenant!="` + mine + `",__name__=~".+"}`, `{tenant=~"` + mine + `|` + theirs + `"}`, `only_` + theirs,
		`only_` + mine + ` or only_` + theirs,
		`count by (tenant) ({__name__=~".+"})`, `sum by (tenant, id, name) (container_cpu_usage_seconds_total)`,
		`topk(100, {__name__=~"container_.+"})`,
		`label_replace({__name__=~"only_.+"}, "tenant", "other", "tenant", "(.*)")`,
		`label_join({__name__=~"only_.+"}, "x", "-", "tenant", "host")`,
		`count_values("tenant", {__name__=~"only_.+"})`, `max_over_time({__name__=~"only_.+"}[1m:1s])`,
		`{__name__=~"only_.+"} @ ` + at,
		`{__name__=~"only_.+"} @ end()`, `{__name__=~"only_.+"} offset 1s`, `{__name__=~"only_.+"}[1m]`,
		`rate({__name__=~"container_.+_total"}[10s])`,
		`absent(only_` + theirs + `)`, `absent_over_time(only_` + theirs + `[1m])`, `present_over_time({tenant="` +
			theirs + `"}[1m])`,
		`only_` + mine + ` and on() {tenant="` + theirs + `"}`, `only_` + mine + ` * on(host) group_left(tenant, of_` +
			theirs + `) {__name__=~"only_.+"}`,
		`only_` + mine + ` unless on(host) {tenant="` + theirs + `"}`, `-{__name__=~"only_.+"}`, `({tenant="` + theirs +
			`"})`, `sort({__name__=~"only_.+"})`,
		`scalar(only_` + theirs + `)`, `vector(scalar(sum({tenant="` + theirs + `"})))`,
		`histogram_quantile(0.5, {__name__=~".+_seconds"})`,
		`quantile_over_time(0.5, {__name__=~"only_.+"}[10s])`, `sum(last_over_time({__name__=~"only_.+"}[10s])) by (tenant)`,
		`timestamp({__name__=~"only_.+"})`, `changes({__name__=~"only_.+"}[20s:1s] @ start() offset -1s)`,
		`{"__name__"=~"only_.+"}`,
		`{__name__=~"only_.+", tenant=~"` + theirs + `|"}`, `group without (host) ({__name__=~"only_.+"})`,
	} {
		paths = append(paths, "/api/v1/query?"+url.Values{"query": {q}, "time": {at}}.Encode())
		if !strings.HasSuffix(q, "]") {
			paths = append(paths, "/api/v1/query_range?"+url.Values{"query": {q},
				"start": {fmt.Sprint(now.Unix() - 10)}, "end": {at}, "step": {"5"}}.Encode())
		}
	}
	for _, m := range []string{`{__name__=~".+"}`, `{tenant="` + theirs + `"}`, `{tenant=~".+"}`, `only_` + theirs,
		`{__name__=~"only_.+",tenant!="` + mine + `"}`} {
		form := url.Values{"match[]": {m, `{tenant=~"` + theirs + `.*"}`}}.Encode()
		for _, path := range []string{"series", "labels", "label/tenant/values", "label/name/values",
			"label/__name__/values", "label/of_" + theirs + "/values"} {
			paths = append(paths, "/api/v1/"+path+"?"+form)
		}
	}
	paths = append(paths, "/api/v1/labels", "/api/v1/label/tenant/values", "/api/v1/label/__name__/values",
		"/api/v1/label/id/values", "/api/v1/metadata",
		"/api/v1/query_exemplars?query=only_"+theirs, "/api/v1/rules", "/api/v1/alerts", "/api/v1/status/buildinfo")
	for _, path := range []string{"graph", "containers", "path", "changes", "graph?by=process",
		"graph?by=host", "status", "matrix", "matrix?by=process&format=csv",
		"services", "hosts", "contention", "extent", "labelled", "labelled?points=5", "lines?numbers=usage.cpu_cores,host.cpu_cores"} {
		joint := "?"
		if strings.Contains(path, "?") {
			joint = "&"
		}
		paths = append(paths, "/api/outsight/"+path+joint+"from=now-10s")
	}
	return paths
}

func TestNoTenantReadsAnothersSeries(t *testing.T) {
	kept, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	readsItsOwnAlone(t, kept)
}

// readsItsOwnAlone asks in every way, as each of two tenants, for what the other has.
func readsItsOwnAlone(t *testing.T, kept keeper) {
	start := time.Now().Add(-3 * time.Minute).Truncate(time.Second)
	sh := newShop(start)
	now := start
	frames := openKept(t, time.Now)
	agents := map[string]map[string]*sending{"qzz": {}, "wzz": {}}
	for i := range 16 {
		now = start.Add(time.Duration(i) * time.Second)
		for _, tenant := range []string{"qzz", "wzz"} {
			frames.tenant, frames.agents = tenant, agents[tenant]
			err := errors.Join(kept.Append(context.Background(), marked(otlp.FromFrame(frame.Of(sh.at(now)), otlp.SeriesOptions{}), tenant)),
				frames.send(markedSnapshot(sh.at(now), tenant)))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := frames.flush(); err != nil {
		t.Fatal(err)
	}
	auth, err := access.NewAuthenticator(map[string][]string{"qzz": {tokenA}, "wzz": {tokenB}})
	if err != nil {
		t.Fatal(err)
	}
	handlers := map[string]http.Handler{}
	for _, tenant := range auth.Tenants() {
		view := store.ForTenant(kept, tenant)
		handlers[tenant] = New(Options{Log: frames.log, Tenant: tenant, Prometheus: Prometheus(view), Now: func() time.Time { return now }})
	}
	h := access.ByTenant(auth, handlers)
	ask := func(path, token string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	eventually(t, "both tenants read their own", func() error {
		for tenant, token := range map[string]string{"qzz": tokenA, "wzz": tokenB} {
			code, body := ask("/api/v1/query?"+url.Values{"query": {"only_" + tenant},
				"time": {fmt.Sprint(now.Unix())}}.Encode(), token)
			if code != http.StatusOK || !strings.Contains(body, `"tenant":"`+tenant+`"`) {
				return fmt.Errorf("%d %s", code, body)
			}
		}
		return nil
	})
	own := 0
	for tenant, theirs := range map[string]string{"qzz": "wzz", "wzz": "qzz"} {
		token := map[string]string{"qzz": tokenA, "wzz": tokenB}[tenant]
		for _, path := range ways(tenant, theirs, now) {
			code, body := ask(path, token)
			switch code {
			case http.StatusOK, http.StatusBadRequest, http.StatusUnprocessableEntity:
			default:
				t.Errorf("%s as %s: %d %s", path, tenant, code, body)
			}
			// What was asked may come back in a message: a query, or a label that is said to be missing.
			if code == http.StatusOK && strings.Contains(body, theirs) && !strings.Contains(path, "absent") {
				t.Errorf("%s as %s tells of %s: %.300s", path, tenant, theirs, body)
			}
			if code == http.StatusOK && strings.Contains(body, tenant) {
				own++
			}
		}
	}
	if own < 60 {
		t.Errorf("only %d answers had anything of the tenant's own: the others prove little", own)
	}
	if code, _ := ask("/api/v1/query?query=only_qzz", "no-such-token-at-all"); code != http.StatusUnauthorized {
		t.Errorf("an unknown token: %d", code)
	}
	// What joins with metadata that it looks up by itself is not there at all.
	if code, body := ask("/api/v1/query?query=info(only_qzz)", tokenA); code != http.StatusBadRequest {
		t.Errorf("info: %d %s", code, body)
	}
}

// A reader sees the refusals of its own tenant, and nothing of what the process counts of all: that tells of others.
func TestRefusalsOfATenant(t *testing.T) {
	auth, err := access.NewAuthenticator(map[string][]string{"qzz": {tokenA}, "wzz": {tokenB}})
	if err != nil {
		t.Fatal(err)
	}
	at := begin.Add(time.Second)
	counted := map[string][]model.Refusal{
		"qzz": {{What: model.RefusedRequests, Reason: "unauthorized", Count: 3, Last: at, From: "10.0.0.7",
			Said: "this token is of another tenant"}},
		"wzz": {{What: model.RefusedPoints, Reason: "future", Count: 9, Last: at, From: "10.0.0.8",
			Said: "set the sender's clock"}},
		"": {{What: model.RefusedRequests, Reason: "unauthorized", Count: 44, Last: at, From: "10.0.0.9"},
			{What: model.RefusedPoints, Reason: "future", Count: 9}},
	}
	options := Options{Log: nothing{}, Now: func() time.Time { return at },
		Refusals: func(tenant string) []model.Refusal { return counted[tenant] },
		Bounds:   func(context.Context) []model.Drop { return []model.Drop{{Name: "of-everybody", Count: 77}} }}
	handlers := map[string]http.Handler{}
	for _, tenant := range auth.Tenants() {
		options.Tenant = tenant
		handlers[tenant] = New(options)
	}
	h := access.ByTenant(auth, handlers)
	ask := func(token string) (a statusAnswer, body string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/api/outsight/status", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != http.StatusOK || err != nil {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		return a, w.Body.String()
	}
	for token, want := range map[string]refusal{
		tokenA: {"requests", "unauthorized", 3, &at, "10.0.0.7", "this token is of another tenant"},
		tokenB: {"points", "future", 9, &at, "10.0.0.8", "set the sender's clock"},
	} {
		a, body := ask(token)
		if !reflect.DeepEqual(a.Refusals, []refusal{want}) || len(a.Drops) != 0 ||
			strings.Contains(body, "of-everybody") || strings.Contains(body, "44") {
			t.Errorf("got %s, want the refusal %+v alone", body, want)
		}
	}
	// A reader without a token belongs to no tenant.
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/outsight/status", nil))
	if a, _ := ask(tokenA); w.Code != http.StatusUnauthorized || auth.RefusedReaders() != 1 || len(a.Refusals) != 1 {
		t.Errorf("%d, %d refused, got %+v", w.Code, auth.RefusedReaders(), a.Refusals)
	}
	// Without tenants, everything is shown.
	options.Tenant = ""
	var a statusAnswer
	get200(t, New(options), "/api/outsight/status", &a)
	if len(a.Refusals) != 2 || a.Refusals[0].Count != 44 || a.Refusals[1].Last != nil || len(a.Drops) != 1 ||
		a.Drops[0].Name != "of-everybody" {
		t.Errorf("got %+v, %+v", a.Refusals, a.Drops)
	}
}

func eventually(t testing.TB, what string, done func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s: %v", what, err)
		}
	}
}

func openPeer(t *testing.T, o store.RemoteOptions) *store.Remote {
	t.Helper()
	r, err := store.OpenRemote(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}
