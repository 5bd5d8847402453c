package frame

import "testing"

// TestSkipNumbers: numbers are passed over up to the end of the last one, wherever it is among eight bytes, and not a byte
// of the next one.
func TestSkipNumbers(t *testing.T) {
	for before := range 24 {
		for _, long := range []bool{false, true} {
			var b []byte
			for i := range before {
				if long && i%3 == 0 {
					b = append(b, 0x81)
				}
				b = append(b, 1)
			}
			end := len(b)
			b = append(b, 0x81, 0x82, 3, 0x84, 5, 6, 7, 8, 9, 10, 11, 12)
			if at := skipNumbers(b, 0, before); at != end {
				t.Errorf("%d numbers end at %d, want %d", before, at, end)
			}
		}
	}
}
