package quota

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Without tenants there is one share of everything.
func TestWithoutTenants(t *testing.T) {
	s := NewShares(100, Tenants{}, nil)
	if !s.Take("", 100) || s.Take("", 1) || s.Used() != 100 {
		t.Errorf("got %+v", s.Usages())
	}
	s.Add("", -100)
	if s.Available("") != 100 {
		t.Errorf("room for %d", s.Available(""))
	}
}

// A tenant may have what others leave free, and never what they are guaranteed.
func TestShares(t *testing.T) {
	s := NewShares(100, Tenants{Names: []string{"a", "b"}}, nil)
	if !s.Take("a", 75) || s.Take("a", 1) || !s.Take("b", 25) || s.Take("b", 1) {
		t.Errorf("got %+v", s.Usages())
	}
	s.Add("a", -75)
	if got := s.Available("b"); got != 50 {
		t.Errorf("room for %d, want 50", got)
	}
	uses := s.Usages()
	if len(uses) != 2 || uses[1] != (Usage{Tenant: "b", Used: 25, Limit: 75, Guaranteed: 25, Refused: 1}) {
		t.Errorf("got %+v", uses)
	}
}

// Where tenants may come, there is room for the next one.
func TestOpenShares(t *testing.T) {
	s := NewShares(100, Tenants{Open: true}, nil)
	if !s.Take("a", 75) || s.Take("a", 1) {
		t.Errorf("got %+v", s.Usages())
	}
	for _, next := range []string{"b", "c", "d"} {
		if s.Available(next) == 0 {
			t.Errorf("no room for %s: %+v", next, s.Usages())
		}
		s.Add(next, 1)
	}
	s.Add("a", -75)
	if _, ok := s.used["a"]; ok {
		t.Error("a is still known")
	}
	for i := range 3000 {
		s.Add(strings.Repeat("x", i%1500+1), 1)
	}
	if len(s.used) > maxTenants+1 {
		t.Errorf("%d tenants have a part of their own", len(s.used))
	}
}

// Parts add up to no more than there is, whoever takes what in which order.
func TestSharesAddUp(t *testing.T) {
	s := NewShares(1000, Tenants{Names: []string{"a", "b", "c"}, Open: true}, nil)
	names := []string{"a", "b", "c", "d", "e"}
	state := uint32(1)
	held := map[string]int64{}
	for range 20_000 {
		state = state*1664525 + 1013904223
		name := names[state>>8%5]
		if n := int64(state >> 16 % 97); state>>28%3 > 0 {
			part := s.guaranteed(name)
			if got := s.Take(name, n); got {
				held[name] += n
			} else if held[name]+n <= part && s.Used()+n <= 1000 {
				t.Fatalf("%s has %d of %d guaranteed and did not get %d", name, held[name], part, n)
			}
		} else {
			s.Add(name, -held[name])
			held[name] = 0
		}
		if s.Used() > 1000 {
			t.Fatalf("%+v", s.Usages())
		}
	}
}

func TestOwnLimit(t *testing.T) {
	table := Table{"a": {Series: 10}, AnyTenant: {Series: 40}}
	s := NewShares(100, Tenants{Names: []string{"a", "b"}}, func(tenant string) int64 { return table.Of(tenant).Series })
	if !s.Take("a", 10) || s.Take("a", 1) || !s.Take("b", 40) || s.Take("b", 1) {
		t.Errorf("got %+v", s.Usages())
	}
}

func TestRates(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	r := NewRates(func() time.Time { return now }, func(tenant string) int64 {
		if tenant == "slow" {
			return 100
		}
		return 0
	})
	r.Charge("fast", 1_000_000)
	if r.Wait("fast") != 0 || r.Wait("slow") != 0 {
		t.Error("who has not begun has to wait")
	}
	r.Charge("slow", 1500) // 1,000 may be taken at once
	if got := r.Wait("slow"); got < 5*time.Second || got > 6*time.Second {
		t.Errorf("has to wait for %v", got)
	}
	now = now.Add(6 * time.Second)
	if got := r.Wait("slow"); got != 0 {
		t.Errorf("has to wait for %v", got)
	}
	// A clock that jumps years does not give years of samples, and one that jumps back does not lock out.
	now = now.AddDate(5, 0, 0)
	r.Charge("slow", 1101)
	if got := r.Wait("slow"); got < time.Second || got > 2*time.Second {
		t.Errorf("has to wait for %v", got)
	}
	now = now.AddDate(-10, 0, 0)
	if got := r.Wait("slow"); got > 2*time.Second {
		t.Errorf("has to wait for %v", got)
	}
	now = now.Add(2 * time.Second)
	if got := r.Wait("slow"); got != 0 {
		t.Errorf("has to wait for %v", got)
	}
	if got := r.All()["slow"]; got != (Rate{Taken: 2601, Refused: 3, PerSecond: 100, Recent: 90}) {
		t.Errorf("got %+v", got)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotas.yml")
	f := func(text, problem string) Table {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := Read(path)
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: got %v, want %q", text, err, problem)
		}
		return table
	}
	table := f("shop: {series: 50000, samples_per_second: 20000}\n\"*\": {label_bytes: 7}\n", "")
	if table.Of("shop") != (Limits{Series: 50000, SamplesPerSecond: 20000}) ||
		table.Of("bank") != (Limits{LabelBytes: 7}) {
		t.Errorf("got %+v", table)
	}
	f("", "")
	f("shop: {serie: 1}", "serie")
	f("shop: {series: -1}", "below 0")
	f("shop: {query_share: 1.5}", "at most 1")
	f("shop: {query_share: .nan}", "at most 1")
	f("shop: 7", "want lines such as")
}
