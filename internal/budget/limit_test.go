package budget

import "testing"

func TestLimit(t *testing.T) {
	for text, want := range map[string]Limit{"1%": 0.01, " 0.5%": 0.005, "100%": 1} {
		var l Limit
		if err := l.Set(text); err != nil || l != want {
			t.Errorf("%q: %v, %v, want %v", text, float64(l), err, float64(want))
		}
		var again Limit
		if err := again.Set(l.String()); err != nil || again != l {
			t.Errorf("%q becomes %q, which is %v, %v", text, l.String(), float64(again), err)
		}
	}
	for _, text := range []string{"", "1", "%", "0%", "-1%", "101%", "NaN%", "Inf%", "1 percent"} {
		var l Limit
		if err := l.Set(text); err == nil || l != 0 {
			t.Errorf("%q is taken for %v", text, float64(l))
		}
	}
}
