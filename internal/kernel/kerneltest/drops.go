package kerneltest

import "testing"

// DropsHaveNames fails a test if one of the drops below count has no name that users see, or that of another.
func DropsHaveNames[E ~uint32](t *testing.T, names map[E]string, count E) {
	t.Helper()
	of := map[string]E{}
	for which := range count {
		name := names[which]
		if other, found := of[name]; name == "" || found {
			t.Errorf("drop %d of %T has the name %q, and so has %d", which, which, name, other)
		}
		of[name] = which
	}
	if len(names) != int(count) {
		t.Errorf("%d names for %d drops of %T", len(names), count, count)
	}
}
