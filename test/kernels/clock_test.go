package kernels

import (
	"bytes"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"outsight/test/kernels/report"
)

// TestClockDevice compares a guest's clock with the PTP clock of an emulated network card: tests of internal/hostclock,
// and an agent, a probe and a reflector with --clock-device.
func TestClockDevice(t *testing.T) {
	t.Parallel()
	of := all[len(all)-1]
	kernel, err := of.kernel(imageDir)
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	files := programs(t, scratch, "init", "hostclock.test", "outsight-agent", "outsight")
	files["ip"] = hostProgram(t, "ip")
	maps.Copy(files, libraries(t, files["ip"]))
	for _, module := range kernel.clock {
		files["modules/"+filepath.Base(module)] = module
	}
	for _, module := range kernel.modules {
		if strings.HasSuffix(module, "-veth"+moduleSuffix) {
			files["modules/"+filepath.Base(module)] = module
		}
	}
	archive, err := writeInitramfs(filepath.Join(scratch, "initramfs"), files)
	if err != nil {
		t.Fatal(err)
	}
	var console bytes.Buffer
	r, err := run(kernel.image, archive, filepath.Join(scratch, "report.json"), []string{report.Clock + "=yes"}, &console,
		"-nic", "none", "-device", "e1000e")
	if err != nil {
		t.Error(err)
	}
	expectChecks(t, &r)
	showConsole(t, of.name, console.Bytes())
}
