// Package kernels tests the product on older kernels, in virtual machines: Debian's kernel, a
// first process of our own (package guest), and the built binaries. The machines have cgroup v2
// alone.
package kernels

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"outsight/internal/model"
	"outsight/test/kernels/report"
)

// imageDir keeps kernels from one run to the next; `make clean` removes it.
const imageDir = "../../bin/kernels"

func TestKernels(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Fatalf("%v: install it with scripts/install kernels", err)
	}
	scratch := t.TempDir()
	basic := programs(t, scratch, "init", "sched.test", "net.test", "block.test", "tick.test", "groups.test", "region.test",
		"outsight-agent")
	network := map[string]string{"ip": hostProgram(t, "ip")}
	maps.Copy(network, libraries(t, network["ip"]))
	images, err := disks(scratch)
	if err != nil {
		t.Fatal(err)
	}
	only := os.Getenv("OUTSIGHT_KERNEL")
	var reports [len(all)]*report.Report
	t.Run("guests", func(t *testing.T) {
		for i, s := range all {
			if only != "" && s.name != only {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel() // each takes one of the host's CPUs
				kernel, err := s.kernel(imageDir)
				if err != nil && s.optional && !errors.Is(err, errUnusable) {
					t.Skipf("no kernel %s to be had: %v", s.name, err)
				} else if err != nil {
					t.Fatal(err)
				}
				files := maps.Clone(basic)
				if !s.withoutEdges { // nor disks, nor regions
					maps.Copy(files, images)
					maps.Copy(files, network)
					for _, module := range kernel.modules {
						files["modules/"+filepath.Base(module)] = module
					}
				}
				archive, err := writeInitramfs(filepath.Join(scratch, s.name+".cpio"), files)
				if err != nil {
					t.Fatal(err)
				}
				var console bytes.Buffer
				r, err := run(kernel.image, archive, filepath.Join(scratch, s.name+".json"), settings(s), &console)
				if err != nil {
					t.Error(err)
				}
				reports[i] = &r
				for _, c := range r.Checks {
					if c.Failure != "" {
						t.Errorf("%s: %s: %s (%s)", r.Release, c.Name, c.Failure, c.Note)
					}
				}
				for _, f := range r.Features {
					ofFileSystem := strings.HasPrefix(f.Purpose, "disk: duration of fsync")
					absent := s.withoutTCX && strings.HasPrefix(f.Name, "tcx/") ||
						strings.HasSuffix(f.Name, "(uplinks)") || // these guests have no network card
						s.withoutFigures && f.Name == "syscall/read_groups"
					if !s.withoutEdges && (absent != (f.State == model.FeatureAbsent) ||
						ofFileSystem && f.State != model.FeatureWorks) {
						t.Errorf("%s: %s is %s: %s", r.Release, f.Name, f.State, f.Reason)
					}
				}
				showConsole(t, s.name, console.Bytes())
			})
		}
	})
	var had []report.Report
	for _, r := range reports {
		if r != nil {
			had = append(had, *r)
		}
	}
	fmt.Print(table(had))
}

// showConsole shows what a guest printed: all of it where one guest was asked for, and of one that failed what its kernel
// said and its end. (What its failed tests printed is in the report, and would be lost in all that the others did.)
func showConsole(t *testing.T, guest string, console []byte) {
	t.Helper()
	if os.Getenv("OUTSIGHT_KERNEL") != "" && (t.Failed() || testing.Verbose()) {
		t.Logf("the guest's console:\n%s", console)
	} else if t.Failed() {
		const end = 200
		lines := strings.Split(string(console), "\n")
		isKernels := regexp.MustCompile(`^\[ *[0-9]+\.[0-9]{6}\]`).MatchString
		kernels := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !isKernels(line) })
		t.Logf("the guest's kernel (all that the guest printed is there with OUTSIGHT_KERNEL=%s):\n%s\nand the end:\n%s", guest,
			strings.Join(kernels[:min(len(kernels), end)], "\n"), strings.Join(lines[max(0, len(lines)-end):], "\n"))
	}
}

func settings(s series) (all []string) {
	if pattern := os.Getenv(report.Run); pattern != "" {
		all = append(all, report.Run+"="+pattern)
	}
	if s.withoutEdges {
		all = append(all, report.WithoutEdges+"=yes")
	}
	return all
}

// programs builds some of what runs in guests, without cgo: most guests have no libraries.
func programs(t *testing.T, dir string, wanted ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for place, arguments := range map[string][]string{
		"init":           {"build", "./test/kernels/guest"},
		"sched.test":     {"test", "-c", "./internal/kernel/sched"},
		"net.test":       {"test", "-c", "./internal/kernel/net"},
		"block.test":     {"test", "-c", "./internal/kernel/block"},
		"tick.test":      {"test", "-c", "./internal/kernel/tick"},
		"groups.test":    {"test", "-c", "./internal/kernel/groups"},
		"region.test":    {"test", "-c", "./internal/kernel/region"},
		"hostclock.test": {"test", "-c", "./internal/hostclock"},
		"outsight-agent": {"build", "./cmd/outsight-agent"},
		"rdma.test":      {"test", "-c", "./internal/region/rdma"},
		"outsight":       {"build", "./cmd/outsight"},
	} {
		if !slices.Contains(wanted, place) {
			continue
		}
		all[place] = filepath.Join(dir, place)
		command := exec.Command("go", slices.Concat(arguments[:len(arguments)-1],
			[]string{"-ldflags=-s -w", "-o", all[place], arguments[len(arguments)-1]})...)
		command.Dir = "../.."
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("building the guest's %s: %v\n%s", place, err, output)
		}
	}
	return all
}

// table shows what works on which kernel: a row for each purpose, with the hook that serves it.
func table(reports []report.Report) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(head string, cell func(report.Report) string) {
		fmt.Fprint(w, head)
		for _, r := range reports {
			fmt.Fprint(w, "\t", cell(r))
		}
		fmt.Fprintln(w)
	}
	row("kernel", func(r report.Report) string { return r.Release })
	for _, purpose := range rows(reports, func(r report.Report) (names []string) {
		for _, f := range r.Features {
			names = append(names, f.Purpose)
		}
		return names
	}) {
		row(purpose, func(r report.Report) string {
			for _, f := range r.Features {
				if f.Purpose == purpose && f.State == model.FeatureWorks {
					return f.Name
				}
			}
			return "-"
		})
	}
	for _, name := range rows(reports, func(r report.Report) (names []string) {
		for _, c := range r.Checks {
			names = append(names, c.Name)
		}
		return names
	}) {
		row(name, func(r report.Report) string {
			i := slices.IndexFunc(r.Checks, func(c report.Check) bool { return c.Name == name })
			switch {
			case i < 0:
				return "-"
			case r.Checks[i].Failure != "":
				return "FAILED"
			}
			return strings.TrimSpace("ok " + r.Checks[i].Note)
		})
	}
	w.Flush()
	// At the end of a long log, where one looks first.
	for _, r := range reports {
		for _, c := range r.Checks {
			if c.Failure != "" {
				fmt.Fprintf(&text, "%s: %s: %s\n", r.Release, c.Name, c.Failure)
			}
		}
	}
	return text.String()
}

// rows are the names that any report has, in the order of their first appearance.
func rows(reports []report.Report, of func(report.Report) []string) (names []string) {
	for _, r := range reports {
		for _, name := range of(r) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
