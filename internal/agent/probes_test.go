package agent

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"outsight/internal/container"
	"outsight/internal/frame"
	"outsight/internal/model"
)

// entering are measurements that only tell with what they are run.
type entering chan func(container string) (*os.File, error)

func (e entering) Run(ctx context.Context, _ func() *frame.Frame, process func(string) (*os.File, error)) error {
	e <- process
	<-ctx.Done()
	return nil
}

func (entering) Sample() *model.ProbeSample { return nil }

// TestMeasurementsEnterContainers: an agent of root hands its measurements the way into containers, and a capacity that it is
// told is in its frames while both ends run.
func TestMeasurementsEnterContainers(t *testing.T) {
	probes := make(entering, 1)
	host, err := Open(HostOptions{Probes: probes, Options: Options{Interval: 100 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	now := time.Now().Truncate(time.Millisecond)
	host.KeepCapacity(model.Capacity{From: model.HostContainerID, To: "gone", FromName: "host", ToName: "gone", BytesPerSecond: 1,
		Measured: now})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- host.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	process := <-probes
	if process == nil {
		t.Fatal("there is no way into containers")
	}
	if _, err := process(model.HostContainerID); !errors.Is(err, container.ErrNoNamespace) {
		t.Errorf("into the host: %v", err)
	}
	if _, err := process("nobody"); !errors.Is(err, container.ErrEnded) {
		t.Errorf("into a container that is not there: %v", err)
	}
	metrics := func() (rows int) {
		f := host.Frame()
		if f == nil {
			return -1
		}
		for row := range f.Tables[frame.Labelled].IDs {
			if f.Text(frame.Labelled, frame.LabelledMetric, row) == "outsight_path_capacity_bytes_per_second" {
				rows++
			}
		}
		return rows
	}
	await := func(want int) {
		t.Helper()
		for begun := time.Now(); metrics() != want; time.Sleep(10 * time.Millisecond) {
			if time.Since(begun) > 30*time.Second {
				t.Fatalf("%d capacities in the frame, want %d", metrics(), want)
			}
		}
	}
	await(0) // of a container that has ended
	for _, c := range host.Containers() {
		if c.ID != model.HostContainerID {
			host.KeepCapacity(model.Capacity{From: model.HostContainerID, To: c.ID, FromName: "host", ToName: c.Name,
				BytesPerSecond: 1, Measured: now})
			await(1)
			return
		}
	}
}
