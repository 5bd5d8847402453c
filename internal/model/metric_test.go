package model

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestContainerRows(t *testing.T) { checkRows(t, ContainerRows, UsageGroups) }
func TestEdgeRows(t *testing.T)      { checkRows(t, EdgeRows, SideGroups) }
func TestEndpointRows(t *testing.T)  { checkRows(t, EndpointRows, SideGroups) }
func TestHostRows(t *testing.T)      { checkRows(t, HostRows, HostGroups) }

// checkRows holds what each row and column of a table needs.
func checkRows[T any](t *testing.T, rows []Row[T], groups []string) {
	keys := map[string]bool{}
	for _, n := range Numbers(rows, groups) { // which panics where a number names what is not there
		if keys[n.Key] || n.Key == "" || n.Title == "" && n.PromQL != "" {
			t.Errorf("number %q: twice, or it has no key or title", n.Key)
		}
		keys[n.Key] = true
		if n.PromQL != "" && !strings.Contains(n.PromQL, "{$match") {
			t.Errorf("%s: %s selects no series", n.Key, n.PromQL)
		}
	}
	for _, r := range rows {
		if (r.Each != nil) == (len(r.Columns) > 0) {
			t.Errorf("%s: want columns or a way to each series, one of the two", r.Name)
		}
		for _, c := range r.Columns {
			readers := []bool{c.Count != nil, c.Value != nil, c.Histogram != nil}
			if n := len(slices.DeleteFunc(readers, func(there bool) bool { return !there })); n != 1 {
				t.Errorf("%s: the column %s has %d readers, want 1", r.Name, c.Name, n)
			}
			if (c.Histogram != nil) != (r.Kind == HistogramSeries) {
				t.Errorf("%s: the column %s does not read what the metric is", r.Name, c.Name)
			}
			if (c.Label.Name == "") != (len(r.Columns) == 1) {
				t.Errorf("%s: a label on each of several columns, and on no other: %s", r.Name, c.Name)
			}
			if r.Kind == Counter && c.Value != nil {
				t.Errorf("%s: a counter is a count, or sums lose digits", r.Name)
			}
		}
	}
}

// What lists the counters that add up has all of them.
func TestPlainCounters(t *testing.T) {
	checkPlain(t, &TaskCounters{}, (*TaskCounters).plain, nil)
	checkPlain(t, &EdgeCounters{}, func(c *EdgeCounters) []*uint64 {
		all := c.Plain()
		return all[:]
	}, []string{"RTTMinNS"})
}

func checkPlain[T any](t *testing.T, c *T, plain func(*T) []*uint64, others []string) {
	for i, n := range plain(c) {
		*n = uint64(i + 1)
	}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).Kind() == reflect.Uint64 && v.Field(i).Uint() == 0 && !slices.Contains(others, name) {
			t.Errorf("%T: %s is not among those that are added up", *c, name)
		}
	}
}
