package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"outsight/internal/model"
)

func TestParsePressure(t *testing.T) {
	check := func(text string, want model.Pressure, fails bool) {
		t.Helper()
		if got, err := parsePressure([]byte(text)); got != want || (err != nil) != fails {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	const some, full = "some avg10=0.00 avg60=0.00 avg300=1.00 total=1234\n",
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
	check(some+full, model.Pressure{WaitingNS: 1234000, StalledNS: 7000, Known: true}, false)
	check(some, model.Pressure{WaitingNS: 1234000, Known: true}, false)
	check("other total=5\n"+some, model.Pressure{WaitingNS: 1234000, Known: true}, false)
	for _, bad := range []string{"", full, some[:20], "some avg10=0.00\n", "some total=x\n",
		"some total=99999999999999999999\n"} {
		check(bad, model.Pressure{}, true)
	}
}

// What a group's files say of its pressure is what is read, and grows while threads wait for each other.
func TestPressureIsTheKernels(t *testing.T) {
	layout, err := Detect(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if reason := noPressure(&layout, "/proc"); reason != "" {
		t.Skip(reason)
	}
	path := fmt.Sprintf("/outsight-test-%d-pressure", os.Getpid())
	directory := layout.unified + path
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Skipf("this test needs root: %v", err)
	}
	shells := exec.Command("taskset", "-c", "0", "sh", "-c",
		"echo $$ > "+directory+"/cgroup.procs; while :; do :; done & while :; do :; done & wait")
	shells.SysProcAttr = ownGroup()
	if err := shells.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killGroup(shells)
		for end := time.Now().Add(patience); os.Remove(directory) != nil &&
			time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		}
	})
	f := NewFiles(layout, Options{})
	t.Cleanup(f.Close)
	c := &model.Container{ID: idA, CgroupPath: path, Cgroup: 7}
	file := func() uint64 {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(directory, "cpu.pressure"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := parsePressure(text)
		if err != nil {
			t.Fatal(err)
		}
		return p.WaitingNS
	}
	// What says the same for long is read less often.
	eventually(t, func() error {
		if file() == 0 {
			return errors.New("no thread has waited")
		}
		return nil
	})
	end := time.Now().Add(patience)
	for {
		before, u := file(), readOne(t, f, c)
		if u.Err != nil || u.Pressure == nil {
			t.Fatalf("%+v", u)
		}
		p := *u.Pressure
		if after := file(); !p.CPU.Known || !p.Memory.Known || p.CPU.WaitingNS < before || p.CPU.WaitingNS > after {
			t.Fatalf("%+v, the file says %d before and %d after", p, before, after)
		}
		if p.CPU.WaitingNS > 100e6 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v after %v of two threads on one CPU", p, patience)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := os.WriteFile(filepath.Join(directory, "cgroup.pressure"), []byte("0"), 0); err != nil {
		return // a kernel before 6.1 cannot switch it off for one group
	}
	g := NewFiles(layout, Options{})
	t.Cleanup(g.Close)
	if u := readOne(t, g, c); u.Err != nil || u.Pressure != nil {
		t.Errorf("switched off: %+v, %v", u.Pressure, u.Err)
	}
}

// ownGroup puts a command and all that it starts into a process group, which killGroup ends.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(c *exec.Cmd) {
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	_ = c.Wait() // it was killed
}
