package model

import "testing"

// TestRoutes: routes are written and read, and which are the same.
func TestRoutes(t *testing.T) {
	for _, text := range []string{"direct", "*", "192.0.2.1 * 2001:db8::1"} {
		if r, err := ParseRoute(text); err != nil || r.String() != text {
			t.Errorf("%q is read as %v, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "192.0.2.1  192.0.2.2", "nowhere"} {
		if r, err := ParseRoute(text); err == nil {
			t.Errorf("%q is read as %v", text, r)
		}
	}
	for _, c := range []struct {
		x, y   string
		same   bool
		merged string
	}{
		{"direct", "direct", true, "direct"}, {"192.0.2.1 *", "* 192.0.2.2", true, "192.0.2.1 192.0.2.2"},
		{"direct", "*", false, ""}, {"192.0.2.1", "192.0.2.2", false, ""},
	} {
		x, _ := ParseRoute(c.x)
		y, _ := ParseRoute(c.y)
		if same := x.Same(y); same != c.same || same && x.Merge(y).String() != c.merged {
			t.Errorf("%s and %s are the same: %v, together %v", c.x, c.y, same, x.Merge(y))
		}
	}
}
