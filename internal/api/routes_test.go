package api

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"outsight/internal/access"
)

// wanted are all routes, and which roles lead there. Who adds a route decides here who may have it.
var wanted = map[string]access.Roles{
	"/":            access.Public, // the page's own files, which tell nothing
	"/api":         access.Read,
	"/api/":        access.Read,
	"/api/v1/":     access.Read,
	"/metrics":     access.Read | access.Administer,
	"GET /metrics": access.Read | access.Administer,
	"GET /healthz": access.Public,
	"GET /readyz":  access.Public,

	"GET /api/outsight/graph":      access.Read,
	"GET /api/outsight/baseline":   access.Read,
	"GET /api/outsight/extent":     access.Read,
	"GET /api/outsight/picture":    access.Read,
	"GET /api/outsight/cypher":     access.Read,
	"GET /api/outsight/path":       access.Read,
	"GET /api/outsight/whatif":     access.Read,
	"GET /api/outsight/runout":     access.Read,
	"GET /api/outsight/contention": access.Read,
	"GET /api/outsight/services":   access.Read,
	"GET /api/outsight/hosts":      access.Read,
	"GET /api/outsight/probes":     access.Read,
	"GET /api/outsight/recordings": access.Record,
	"GET /api/outsight/changes":    access.Read,
	"GET /api/outsight/matrix":     access.Read,
	"GET /api/outsight/place":      access.Read,
	"POST /api/outsight/place":     access.Read,
	"GET /api/outsight/events":     access.Read,
	"GET /api/outsight/containers": access.Read,
	"GET /api/outsight/chart":      access.Read,
	"GET /api/outsight/lines":      access.Read,
	"GET /api/outsight/labelled":   access.Read,
	"GET /api/outsight/flight":     access.Record,
	"GET /api/outsight/status":     access.Read,
}

// Every route needs the role that the table has, and lets no other token through; what is on none is a file of the page
// or not there.
func TestRoutesNeedRoles(t *testing.T) {
	st := promStore(t)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "m 1\n") })
	roles := map[string]access.Roles{"send": access.Send, "read": access.Read, "record": access.Record,
		"administer": access.Administer}
	var entries []string
	for name := range roles {
		entries = append(entries, "a-token-with-role-"+name+" "+name)
	}
	auth, err := access.NewAuthenticator(map[string][]string{"": entries})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Options: Options{Prometheus: Prometheus(st), Metrics: metrics, Auth: auth}}
	found := map[string]access.Roles{}
	for _, r := range s.routes().Routes() {
		found[r.Pattern] = r.Needs
		if r.Needs == access.Public && !slices.Contains([]string{"/", "GET /healthz", "GET /readyz"}, r.Pattern) {
			t.Errorf("%s is public", r.Pattern)
		}
	}
	if !maps.Equal(found, wanted) {
		t.Errorf("routes are %v, want %v", found, wanted)
	}
	h := New(s.Options)
	for pattern, needs := range wanted {
		path := pattern[strings.Index(pattern, "/"):]
		for name, has := range roles {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Authorization", "Bearer a-token-with-role-"+name)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if through := w.Code != http.StatusForbidden &&
				w.Code != http.StatusUnauthorized; through != (needs == access.Public || has&needs != 0) {
				t.Errorf("%s with the role %s: %d %.200s", pattern, name, w.Code, w.Body)
			}
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path,
			nil)); (w.Code == http.StatusUnauthorized) == (needs == access.Public) {
			t.Errorf("%s without a token: %d", pattern, w.Code)
		}
	}
}

// A web page of somebody else gets nothing of the API, by whatever method; the page and its own requests go on.
func TestForeignPagesGetNothing(t *testing.T) {
	st := promStore(t)
	h := New(Options{Prometheus: Prometheus(st)})
	for pattern, needs := range wanted {
		path := pattern[strings.Index(pattern, "/"):]
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for site, foreign := range map[string]bool{"cross-site": true, "same-site": true, "same-origin": false,
				"none": false, "": false} {
				r := httptest.NewRequest(method, path, strings.NewReader("query=1"))
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				if site != "" {
					r.Header.Set("Sec-Fetch-Site", site)
				}
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); (w.Code == http.StatusForbidden) != (foreign && needs != access.Public) {
					t.Errorf("%s %s from %q: %d", method, path, site, w.Code)
				}
				// Nor may it read an answer, or show one in a frame.
				head := w.Header()
				policy := head.Get("Content-Security-Policy")
				if head.Get("Access-Control-Allow-Origin") != "" || head.Get("Cross-Origin-Resource-Policy") != "same-origin" ||
					!strings.Contains(policy, "frame-ancestors 'none'") && !strings.Contains(policy, "sandbox") {
					t.Errorf("%s %s from %q: headers %v", method, path, site, head)
				}
			}
		}
	}
}
