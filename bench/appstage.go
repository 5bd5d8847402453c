package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// pageAsker asks for a page over a connection of its own.
type pageAsker struct {
	client *http.Client
	url    string
	// answered counts the requests that were.
	answered *atomic.Uint64
}

func newPageAsker(url string, answered *atomic.Uint64) *pageAsker {
	return &pageAsker{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}, url, answered}
}

func (a *pageAsker) Ask() error {
	r, err := a.client.Get(a.url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", r.StatusCode)
	}
	a.answered.Add(1)
	return nil
}

func (a *pageAsker) Close() error {
	a.client.CloseIdleConnections()
	return nil
}

// answers waits until a page is there.
func answers(ctx context.Context, url string) error {
	a := newPageAsker(url, new(atomic.Uint64))
	defer a.Close()
	var err error
	for range 100 {
		if err = a.Ask(); err == nil {
			return nil
		}
		if wait(ctx, 200*time.Millisecond) != nil {
			break
		}
	}
	return fmt.Errorf("asking for %s: %w", url, err)
}

// appStage runs the containers of an application, in a network of their own. Their programs are this host's.
type appStage struct {
	ctx       context.Context
	name      string
	directory string
}

func newAppStage(ctx context.Context) (*appStage, error) {
	directory, err := os.MkdirTemp("", "outsight-bench-")
	if err != nil {
		return nil, err
	}
	s := &appStage{ctx, fmt.Sprintf("outsight-bench-%d-app", os.Getpid()), directory}
	if err = os.Chmod(directory, 0o755); err == nil {
		err = s.image()
	}
	if err == nil {
		_, err = s.docker("network", "create", s.name)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// image makes one of our program, and of places for the host's.
func (s *appStage) image() error {
	binary := filepath.Join(s.directory, "apps")
	build := exec.CommandContext(s.ctx, "go", "build", "-o", binary, "outsight/bench/apps")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program of applications: %w: %s", err, output)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, d := range []string{"usr", "etc", "tmp", "data"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o777}))
	}
	for _, l := range []string{"bin", "lib", "lib64"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: l, Typeflag: tar.TypeSymlink, Linkname: "usr/" + l}))
	}
	err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "apps", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}))
	if err == nil {
		_, err = w.Write(program)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return importImage(s.ctx, s.name, &archive)
}

func (s *appStage) docker(arguments ...string) (string, error) {
	text, err := output(s.ctx, "docker", arguments...)
	return strings.TrimSpace(string(text)), err
}

// mounts are the arguments by which a container has the host's programs and libraries.
func (s *appStage) mounts(more []string) []string {
	return append([]string{"--label", benchLabel, "-v", "/usr:/usr:ro", "-v", "/etc/passwd:/etc/passwd:ro", "-v",
		"/etc/group:/etc/group:ro", "-e", "LC_ALL=C"}, more...)
}

// container is the name of a container.
func (s *appStage) container(name string) string { return s.name + "-" + name }

// run starts a container and answers its address.
func (s *appStage) run(name string, more []string, command ...string) (address string, err error) {
	arguments := append([]string{"run", "-d", "--network", s.name, "--name", s.container(name)}, s.mounts(more)...)
	if _, err := s.docker(append(append(arguments, s.name), command...)...); err != nil {
		return "", err
	}
	return s.address(name)
}

// address is that of a container.
func (s *appStage) address(name string) (string, error) {
	return s.docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", s.container(name))
}

// close removes the containers, their image and network.
func (s *appStage) close() error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(s.ctx), time.Minute)
	defer stop()
	s.ctx = ctx
	ids, err := s.docker("ps", "-aq", "--filter", "name=^"+s.name+"-")
	if ids != "" {
		_, removing := s.docker(append([]string{"rm", "-f"}, strings.Fields(ids)...)...)
		err = errors.Join(err, removing)
	}
	if networks, _ := s.docker("network", "ls", "-q", "--filter", "name=^"+s.name+"$"); networks != "" {
		_, removing := s.docker("network", "rm", networks)
		err = errors.Join(err, removing)
	}
	if images, _ := s.docker("images", "-q", s.name); images != "" {
		_, removing := s.docker("rmi", "-f", images)
		err = errors.Join(err, removing)
	}
	return errors.Join(err, os.RemoveAll(s.directory))
}
