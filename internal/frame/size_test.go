package frame

import "testing"

// TestQuietHostIsSmall: what does not change takes next to nothing.
func TestQuietHostIsSmall(t *testing.T) {
	key, quiet := sampleFrames(50, 200, 0)
	full := len(Encode(nil, key, nil))
	data := Encode(nil, quiet, key)
	got, err := Decode(data, key)
	if err != nil {
		t.Fatal(err)
	}
	if d := difference(quiet, got); d != "" {
		t.Fatal(d)
	}
	t.Logf("key frame %d bytes, a frame without traffic %d", full, len(data))
	if len(data) > full/20 {
		t.Errorf("a frame in which nothing happened has %d bytes, the key frame %d", len(data), full)
	}
}
