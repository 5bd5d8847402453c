package demo

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var lddLine = regexp.MustCompile(`(/\S+) \(0x`)

// TestClosureOfDebianPrograms compares with what the real dynamic linker loads.
func TestClosureOfDebianPrograms(t *testing.T) {
	f := func(program string) {
		t.Helper()
		path := findProgram(program)
		c, err := resolveClosure("/", path)
		if err != nil {
			t.Error(err)
			return
		}
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := []string{path}
		for _, m := range lddLine.FindAllStringSubmatch(string(out), -1) {
			want = append(want, m[1])
		}
		got := slices.Clone(c.files)
		slices.Sort(got)
		slices.Sort(want)
		if len(want) < 3 || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", program, got, want)
		}
	}
	f("redis-server")
	f("nginx")
	f("ls")
}

// TestClosureStarts runs a program from its image's files alone.
func TestClosureStarts(t *testing.T) {
	root := t.TempDir()
	im, err := newImage(findProgram("redis-server"), "/bin/shop-redis")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := im.write(&b); err != nil {
		t.Fatal(err)
	}
	unpack(t, &b, root)
	run := exec.Command("/usr/sbin/chroot", root, "/bin/shop-redis", "--version")
	run.Env = im.env
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "Redis server v=") {
		t.Errorf("%q %v", out, err)
	}
}

func unpack(t *testing.T, r io.Reader, root string) {
	t.Helper()
	seen := map[string]bool{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Clean(h.Name)
		if parent := filepath.Dir(name); seen[name] || parent != "." && !seen[parent] {
			t.Errorf("%q comes twice or before its directory", name)
		}
		seen[name] = true
		path := filepath.Join(root, name)
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, 0o755)
		} else {
			content, readErr := io.ReadAll(archive)
			if readErr != nil {
				t.Fatal(readErr)
			}
			err = os.WriteFile(path, content, os.FileMode(h.Mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestClosureFailures(t *testing.T) {
	root := t.TempDir()
	redis, err := os.ReadFile(findProgram("redis-server"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := func(program, want string) {
		t.Helper()
		_, err := resolveClosure(root, program)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", program, err, want)
		}
	}
	write("redis", redis)
	write("script", []byte("#!/bin/sh\n# no program of its own\n"))
	write("half", redis[:40])
	f("/redis", "ld-linux")
	f("/script", "bad magic")
	f("/half", "resolving")
	f("/nowhere", "no such file")

	self, err := elf.NewFile(bytes.NewReader(redis))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range self.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			linker, err := os.ReadFile(strings.TrimRight(string(name), "\x00"))
			if err != nil {
				t.Fatal(err)
			}
			write(strings.TrimRight(string(name), "\x00"), linker)
		}
	}
	f("/redis", `which "/redis" needs, is in none of`)
	// An include of itself must end.
	write("etc/ld.so.conf", []byte("include /etc/ld.so.conf\n"))
	f("/redis", "includes deep")
}

func TestLinkerDirs(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/ld.so.conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"etc/ld.so.conf":          "include ld.so.conf.d/*.conf # relative\n/last\n",
		"etc/ld.so.conf.d/a.conf": "# comment\n/a /b\nhwcap 0 nosegneg\n",
		"etc/ld.so.conf.d/b.conf": "/c\n\n",
		"etc/ld.so.conf.d/none":   "/not/included\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := resolver{root: root}
	got, err := r.linkerDirs("/etc/ld.so.conf", 0)
	if want := []string{"/a", "/b", "/c", "/last"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
}
