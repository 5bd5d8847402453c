package shaped

import (
	"context"
	"os"
	"testing"
	"time"

	"outsight/bench/incast"
)

// TestRealAndSimulated reads 32 hosts over a real link of 100 Mbit/s with a queue of 192 KB, and simulates the same: without
// flow control more is asked for than the queue takes, and packets are dropped; with a credit of less than the queue none
// is. What passes is the same to the byte.
func TestRealAndSimulated(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	load := incast.Load{Hosts: 32, Bytes: 32 << 10, Fragment: 4 << 10}
	both := func(p incast.Policy, timeout time.Duration) (Result, incast.Result) {
		t.Helper()
		s := Setup(0.1*incast.Gbit, 192<<10, load, p, timeout)
		real, err := Read(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		simulated, err := incast.Run(s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v real %+v", p, real)
		t.Logf("%v simulated %+v", p, simulated)
		return real, simulated
	}
	real, simulated := both(incast.Policy{}, 100*time.Millisecond)
	if real.Drops == 0 || real.Repeated == 0 || simulated.Dropped == 0 || simulated.Repeated == 0 {
		t.Errorf("without flow control: %d drops and %d repeated, simulated %d and %d; want some", real.Drops, real.Repeated,
			simulated.Dropped, simulated.Repeated)
	}
	// Nothing is asked for twice in 20 s, however busy the machine is.
	real, simulated = both(incast.Policy{Flow: incast.Credit, Bytes: 128 << 10}, 20*time.Second)
	if real.Drops != 0 || simulated.Dropped != 0 || real.Repeated != 0 {
		t.Errorf("with credit: %d drops, %d repeated, simulated %d drops; want none", real.Drops, real.Repeated, simulated.Dropped)
	}
	if want := load.Hosts * load.Bytes / 1024; real.Packets < want || simulated.Received != want {
		t.Errorf("%d packets passed, simulated %d, want %d", real.Packets, simulated.Received, want)
	}
	if real.Requests != simulated.Requests {
		t.Errorf("%d requests, simulated %d", real.Requests, simulated.Requests)
	}
}

func TestPolicyThatIsNotThere(t *testing.T) {
	s := Setup(incast.Gbit, 1<<20, incast.Load{Hosts: 1, Bytes: 1, Fragment: 1}, incast.Policy{Flow: incast.Paced, Bytes: 1}, time.Second)
	if _, err := Read(t.Context(), s); err == nil {
		t.Error("no error")
	}
}
