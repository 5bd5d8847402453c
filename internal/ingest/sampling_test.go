package ingest

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server/pse"
)

// With another name of the variable in nats-server, its file would be read again.
func TestNobodySamplesThisProcess(t *testing.T) {
	var cpu float64
	var resident, virtual int64
	if err := pse.ProcUsage(&cpu, &resident, &virtual); err == nil {
		t.Errorf("pse reads that this process has %d bytes resident", resident)
	}
}
