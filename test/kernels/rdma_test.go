package kernels

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outsight/internal/region"
	"outsight/internal/region/rdma"
	"outsight/test/kernels/report"
)

// TestRDMA reads a host's regions by RDMA READ, from the built helper and the built agent, with soft-RoCE: what its
// network card would do the guest's kernel does. Kernel 5.10 counts no edges and has no BPF maps that can be registered.
func TestRDMA(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	basic := rdmaPrograms(t, scratch)
	t.Run("no device", func(t *testing.T) {
		_, err := rdma.Dial(t.Context(), "192.0.2.1:8473", region.Key{}, rdma.Options{Helper: basic["outsight-rdma"],
			Device: "none"})
		if !errors.Is(err, unix.ENODEV) {
			t.Errorf("with a device that is not there: %v", err)
		}
	})
	only := os.Getenv("OUTSIGHT_KERNEL")
	for _, s := range all {
		if s.withoutEdges || only != "" && s.name != only {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			kernel, err := s.kernel(imageDir)
			if err != nil {
				t.Fatal(err)
			}
			files := maps.Clone(basic)
			for _, module := range kernel.rdma {
				files["modules/"+filepath.Base(module)] = module
			}
			archive, err := writeInitramfs(filepath.Join(scratch, s.name+".cpio"), files)
			if err != nil {
				t.Fatal(err)
			}
			var console bytes.Buffer
			r, err := run(kernel.image, archive, filepath.Join(scratch, s.name+".json"),
				append(settings(s), report.RDMA+"=yes"), &console)
			if err != nil {
				t.Error(err)
			}
			expectChecks(t, &r)
			showConsole(t, s.name, console.Bytes())
		})
	}
}

// expectChecks tells what a guest checked, and fails where that is nothing, or something failed.
func expectChecks(t *testing.T, r *report.Report) {
	t.Helper()
	if len(r.Checks) == 0 {
		t.Error("nothing was checked")
	}
	for _, c := range r.Checks {
		if c.Failure != "" {
			t.Errorf("%s: %s: %s (%s)", r.Release, c.Name, c.Failure, c.Note)
		} else {
			t.Logf("%s: %s: ok %s", r.Release, c.Name, c.Note)
		}
	}
}

// rdmaPrograms are the guest's programs: those of this repository, the helper, also with faults, and what sets devices up.
func rdmaPrograms(t *testing.T, scratch string) map[string]string {
	t.Helper()
	files := programs(t, scratch, "init", "outsight", "rdma.test")
	compile(t, "../../internal/appmetrics/testdata/worker.c", filepath.Join(scratch, "worker"), "-pthread", "-I../../sdk/c")
	files["worker"] = filepath.Join(scratch, "worker")
	for name, faults := range map[string][]string{
		"outsight-rdma":         nil,
		"outsight-rdma-writes":  {"-DREADER_OPCODE=IBV_WR_RDMA_WRITE"},
		"outsight-rdma-permits": {"-DCONNECTION_ACCESS=(IBV_ACCESS_REMOTE_READ|IBV_ACCESS_REMOTE_WRITE)"},
		"outsight-rdma-exposes": {"-DMEMORY_ACCESS=(IBV_ACCESS_REMOTE_READ|IBV_ACCESS_REMOTE_WRITE|IBV_ACCESS_LOCAL_WRITE)"},
	} {
		files[name] = filepath.Join(scratch, name)
		compile(t, "../../rdma/outsight-rdma.c", files[name], append(faults, "-libverbs")...)
	}
	for _, name := range []string{"ip", "tc", "rdma"} {
		files[name] = hostProgram(t, name)
	}
	// The library loads what drives a device by its name.
	drivers, err := filepath.Glob("/usr/lib/*/libibverbs/librxe-*.so")
	if err != nil || len(drivers) != 1 {
		t.Fatalf("drivers of soft-RoCE: %q, %v: install them with scripts/install kernels", drivers, err)
	}
	for _, file := range append(drivers, "/etc/libibverbs.d/rxe.driver") {
		files[strings.TrimPrefix(file, "/")] = file
	}
	for _, program := range slices.Collect(maps.Values(files)) {
		if !strings.HasSuffix(program, ".driver") {
			maps.Copy(files, libraries(t, program))
		}
	}
	return files
}

// compile makes a program of a C source.
func compile(t *testing.T, source, program string, arguments ...string) {
	t.Helper()
	if out, err := exec.Command("gcc", slices.Concat([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program,
		source}, arguments)...).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s (scripts/install kernels brings what it needs)", program, err, out)
	}
}
