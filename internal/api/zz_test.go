package api

import (
	"fmt"
	"os"
	"testing"
	"time"

	"outsight/internal/frame"
)

func TestZZ(t *testing.T) {
	now := begin.Truncate(time.Minute).Add(24*time.Hour + 30*time.Second)
	for host := range 50 {
		builder := frame.NewBuilder(now.Add(-24 * time.Hour))
		var key *frame.Frame
		n := uint64(0)
		for j, ago := range []time.Duration{23 * time.Hour, 5 * time.Minute, 0} {
			for k, at := range []time.Time{now.Add(-ago - 29*time.Second), now.Add(-ago)} {
				n += 3
				f := builder.Build(benchHost(host, 50, at, n))
				if f.IsKey() {
					key = f
				}
				if j > 0 {
					os.WriteFile(fmt.Sprintf("/tmp/mapw/frames/%d-%d-%d", host, j, k), frame.Encode(nil, f, key), 0o600)
				}
			}
		}
	}
}
