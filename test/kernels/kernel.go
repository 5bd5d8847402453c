package kernels

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// series is one of Debian's kernels that is still in use somewhere.
type series struct {
	name string
	// pattern of the package's name.
	pattern string
	// suite is set where the packages are in another release of Debian than the host's.
	suite string
	// optional series are skipped where they cannot be had.
	optional bool
	// withoutEdges: too old for the programs that count edges, which need atomic exchange (5.12).
	withoutEdges bool
	// withoutTCX: programs cannot be attached to network interfaces by tcx, which needs 6.6.
	withoutTCX bool
	// withoutFigures: a program cannot get a task by its number, which needs 6.2.
	withoutFigures bool
}

var all = [...]series{
	{name: "5.10", pattern: `^linux-image-5\.10\.0-[0-9]+-amd64$`, suite: "bullseye", optional: true, withoutEdges: true},
	{name: "6.1", withoutTCX: true, withoutFigures: true, pattern: `^linux-image-6\.1\.0-[0-9]+-amd64$`},
	{name: "6.12", pattern: `^linux-image-6\.12\.[0-9]+\+deb12-amd64$`},
}

// kernel is what a guest boots: the file with the kernel, uncompressed, and those with its modules, in the order in
// which they can be loaded.
type kernel struct {
	image   string
	modules []string
	// network are the modules of guests with a network.
	network []string
	// rdma are those of guests with RDMA, clock those of guests with a network card that has a clock.
	rdma, clock []string
}

// errUnusable: the package is there, and is not what this program can unpack.
var errUnusable = errors.New("the package cannot be used")

// fetching is held while a kernel is looked for: apt is one at a time.
var fetching sync.Mutex

// kernel is the series' newest one. It is fetched once.
func (s series) kernel(dir string) (kernel, error) {
	fetching.Lock()
	defer fetching.Unlock()
	dir, err := filepath.Abs(dir) // apt-get downloads into its working directory
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return kernel{}, err
	}
	apt := apt{}
	if s.suite != "" {
		if apt, err = otherSuite(filepath.Join(dir, s.suite), s.suite); err != nil {
			return kernel{}, err
		}
	}
	k, err := apt.kernel(dir, s.pattern)
	if err == nil {
		return k, nil
	}
	// The lists may be older than the archive, or not be there.
	if _, failed := apt.output("", "apt-get", "-q", "update"); failed != nil {
		return k, errors.Join(err, failed)
	}
	return apt.kernel(dir, s.pattern)
}

// kernel is the newest one of a pattern, in a directory of its own.
func (a apt) kernel(dir, pattern string) (kernel, error) {
	name, err := a.newest(pattern)
	if err != nil {
		return kernel{}, err
	}
	place := filepath.Join(dir, strings.TrimPrefix(name, "linux-image-")+unpacked)
	if k, err := kernelIn(place); err == nil {
		return k, nil
	}
	scratch, err := os.MkdirTemp(dir, "package-")
	if err != nil {
		return kernel{}, err
	}
	defer os.RemoveAll(scratch)
	if err := a.download(scratch, name); err != nil {
		return kernel{}, err
	}
	packages, err := filepath.Glob(filepath.Join(scratch, "*.deb"))
	if err != nil || len(packages) != 1 {
		return kernel{}, fmt.Errorf("downloading %s brought the files %q", name, packages)
	}
	part := filepath.Join(scratch, "unpacked")
	if err := os.Mkdir(part, 0o755); err != nil {
		return kernel{}, err
	}
	if err := unpack(packages[0], part); err != nil {
		return kernel{}, fmt.Errorf("unpacking %s: %w: %w", name, errUnusable, err)
	}
	if err := os.Rename(part, place); err != nil {
		return kernel{}, err
	}
	return kernelIn(place)
}

const (
	imageName  = "vmlinux"
	networkDir = "network"
	rdmaDir    = "rdma"
	clockDir   = "clock"
	// unpacked tells directories of this layout from older ones.
	unpacked = "-with-tunnels"
)

// kernelIn is what unpack has put into a directory.
func kernelIn(dir string) (k kernel, err error) {
	k.image = filepath.Join(dir, imageName)
	if _, err := os.Stat(k.image); err != nil {
		return k, err
	}
	k.modules, err = filepath.Glob(filepath.Join(dir, "*"+moduleSuffix)) // sorted
	if err == nil {
		k.network, err = filepath.Glob(filepath.Join(dir, networkDir, "*"+moduleSuffix))
	}
	if err == nil {
		k.rdma, err = filepath.Glob(filepath.Join(dir, rdmaDir, "*"+moduleSuffix))
	}
	if err == nil {
		k.clock, err = filepath.Glob(filepath.Join(dir, clockDir, "*"+moduleSuffix))
	}
	return k, err
}

// apt is the host's package manager; with options, one with lists of its own.
type apt struct{ options []string }

func (a apt) output(dir, program string, arguments ...string) (string, error) {
	command := exec.Command(program, slices.Concat(a.options, arguments)...)
	command.Dir = dir
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(output), nil
}

// otherSuite is apt for another release of the same archive; the host's own state stays as it is.
func otherSuite(dir, suite string) (apt, error) {
	a := apt{[]string{
		"-oDir::Etc::SourceList=" + filepath.Join(dir, "sources.list"), "-oDir::Etc::SourceParts=/dev/null",
		"-oDir::State::Lists=" + filepath.Join(dir, "lists"), "-oDir::Cache=" + filepath.Join(dir, "cache"),
		"-oAPT::Sandbox::User=root",
	}}
	if lists, _ := filepath.Glob(filepath.Join(dir, "lists", "*_Packages*")); len(lists) > 0 {
		return a, nil
	}
	mirrors, err := (apt{}).output("", "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
		"Component: main", "Origin: Debian")
	if err != nil {
		return a, err
	}
	var sources strings.Builder
	for _, uri := range slices.Compact(slices.Sorted(strings.Lines(mirrors))) {
		uri = strings.TrimSpace(uri)
		name := suite
		if strings.Contains(uri, "security") {
			name += "-security"
		}
		fmt.Fprintf(&sources, "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", uri, name)
	}
	if sources.Len() == 0 {
		return a, errors.New("apt has no lists of Debian's archive here")
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return a, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte(sources.String()), 0o644); err != nil {
		return a, err
	}
	_, err = a.output("", "apt-get", "-q", "update")
	return a, err
}

// newest is the package of a pattern with the highest version in its name.
func (a apt) newest(pattern string) (string, error) {
	names, err := a.output("", "apt-cache", "search", "--names-only", pattern)
	if err != nil {
		return "", err
	}
	best := ""
	for line := range strings.Lines(names) {
		if name, _, _ := strings.Cut(line, " "); best == "" || slices.Compare(numbers(best), numbers(name)) < 0 {
			best = name
		}
	}
	if best == "" {
		return "", fmt.Errorf("apt offers no package %s", pattern)
	}
	return best, nil
}

var number = regexp.MustCompile(`[0-9]+`)

func numbers(name string) (all []int) {
	for _, digits := range number.FindAllString(name, -1) {
		n, _ := strconv.Atoi(digits)
		all = append(all, n)
	}
	return all
}

func (a apt) download(dir, name string) error {
	_, err := a.output(dir, "apt-get", "-q", "-oAPT::Sandbox::User=root", "-oAcquire::Retries=3", "download", name)
	return err
}

// unpack puts the kernel of a package and the modules that guests need into a directory.
func unpack(file, dir string) error {
	command := exec.Command("dpkg-deb", "--fsys-tarfile", file)
	content, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	defer command.Wait()
	defer content.Close()
	var image []byte
	modules := map[string]module{}
	for files := tar.NewReader(content); ; {
		header, err := files.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(filepath.Base(header.Name), "vmlinuz-") {
			if image, err = io.ReadAll(files); err != nil {
				return err
			}
		} else if name, ok := moduleName(header.Name); ok {
			m, err := io.ReadAll(files)
			if err != nil {
				return err
			}
			modules[name] = module{content: m, compressed: strings.HasSuffix(header.Name, ".xz")}
		}
	}
	image, err = uncompressed(image)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, imageName), image, 0o644)
	}
	if err != nil {
		return err
	}
	return errors.Join(writeModules(modules, guestModules, dir),
		writeModules(modules, networkModules, filepath.Join(dir, networkDir)),
		writeModules(modules, rdmaModules, filepath.Join(dir, rdmaDir)),
		writeModules(modules, clockModules, filepath.Join(dir, clockDir)))
}

// uncompressed is the ELF file within a bzImage. A machine without hardware virtualization boots
// it seconds sooner, for it need not unpack it.
func uncompressed(image []byte) ([]byte, error) {
	// Offsets in the x86 boot protocol's header.
	const setupSectors, payloadOffset, payloadLength, header = 0x1f1, 0x248, 0x24c, 0x250
	if len(image) < header {
		return nil, fmt.Errorf("an image of %d bytes", len(image))
	}
	start := (int(image[setupSectors])+1)*512 + int(binary.LittleEndian.Uint32(image[payloadOffset:]))
	end := start + int(binary.LittleEndian.Uint32(image[payloadLength:]))
	if start > end || end > len(image) {
		return nil, fmt.Errorf("the payload is to lie at %d to %d of %d bytes", start, end, len(image))
	}
	payload := image[start:end]
	var program []string
	switch {
	case bytes.HasPrefix(payload, []byte("\xfd7zXZ\x00")):
		program = []string{"xz", "-dc"}
	case bytes.HasPrefix(payload, []byte("\x28\xb5\x2f\xfd")):
		program = []string{"zstd", "-dcq"}
		payload = payload[:len(payload)-4] // the length, which zstd takes for garbage
	default:
		return nil, fmt.Errorf("the payload begins with %x", payload[:min(8, len(payload))])
	}
	command := exec.Command(program[0], program[1:]...)
	command.Stdin = bytes.NewReader(payload)
	kernel, err := command.Output()
	if err != nil && len(kernel) == 0 {
		return nil, fmt.Errorf("%s: %w", program[0], err)
	}
	if !bytes.HasPrefix(kernel, []byte("\x7fELF")) {
		return nil, fmt.Errorf("what %s unpacked is no program", program[0])
	}
	return kernel, nil
}
