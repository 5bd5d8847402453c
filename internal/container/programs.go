package container

import (
	"bytes"
	"cmp"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"outsight/internal/model"
)

// recheckAfter is for how long an id is taken to be the same process without a look.
const recheckAfter = 30 * time.Second

// ProgramOptions of NewPrograms. The zero value works.
type ProgramOptions struct {
	// ProcRoot is where procfs is mounted (default /proc).
	ProcRoot string
	// Max bounds the remembered processes and names (default 8192 each).
	Max int
	// Now is the clock (default time.Now).
	Now func() time.Time
}

// Programs knows what to call processes: by the program that they run, not by the interpreter
// that runs it. A process is looked at once, while it lives. It is for one goroutine.
type Programs struct {
	processes processes
	max       int
	now       func() time.Time
	byID      map[processKey]*program
	byName    map[nameKey]string
	evicted   uint64
}

type processKey struct {
	group model.CgroupID
	comm  string
	pid   int
}

type nameKey struct {
	group model.CgroupID
	comm  string
}

type program struct {
	name    string
	started uint64 // ticks since boot
	checked time.Time
}

// severalNames marks a comm of a group that stands for several programs.
const severalNames = "\x00"

// NewPrograms makes a Programs that knows none.
func NewPrograms(o ProgramOptions) *Programs {
	p := &Programs{
		processes: processes{root: cmp.Or(o.ProcRoot, "/proc")}, max: cmp.Or(o.Max, 8192), now: o.Now,
		byID: make(map[processKey]*program), byName: make(map[nameKey]string),
	}
	if p.now == nil {
		p.now = time.Now
	}
	return p
}

// Name is what to call a process of a control group of which the kernel knows the name comm. It
// is that of process pid; where pid is 0, or was gone before it was looked at, that of all
// processes of the group and of this name, if they are one program; else comm.
func (p *Programs) Name(group model.CgroupID, comm string, pid int) string {
	if pid != 0 {
		if name := p.process(processKey{group, comm, pid}); name != "" {
			return name
		}
	}
	if name := p.byName[nameKey{group, comm}]; name != "" && name != severalNames {
		return name
	}
	return cleanName(comm)
}

func (p *Programs) process(k processKey) string {
	now := p.now()
	known := p.byID[k]
	if known != nil && now.Sub(known.checked) < recheckAfter {
		return known.name
	}
	started, err := p.startTicks(k)
	if known != nil {
		known.checked = now
		if err != nil || started == known.started {
			return known.name // also after its end
		}
	}
	if err != nil {
		return ""
	}
	if known == nil {
		p.makeRoom()
		known = &program{}
		p.byID[k] = known
	}
	*known = program{name: p.read(k), started: started, checked: now}
	p.learn(nameKey{k.group, k.comm}, known.name)
	return known.name
}

// startTicks is when a process began, if it still has its name: else it runs another program, or
// the id is another's.
func (p *Programs) startTicks(k processKey) (uint64, error) {
	text, err := readLimited(p.processes.path(k.pid)+"/stat", procLimit)
	if err != nil {
		return 0, err
	}
	from, to := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if from < 0 || to < from || string(text[from+1:to]) != k.comm {
		return 0, errMoved
	}
	return parseStartTicks(text)
}

// read looks at a process. What cannot be read is left out: the kernel's name is always there.
func (p *Programs) read(k processKey) string {
	root := p.processes.path(k.pid)
	executable, _ := os.Readlink(root + "/exe")
	if _, ok := interpreterOf(path.Base(executable)); !ok && len(k.comm) < commLength {
		return programName(k.comm, "", "", nil)
	}
	directory, _ := os.Readlink(root + "/cwd")
	cmdline, _ := readLimited(root+"/cmdline", procLimit)
	return programName(k.comm, executable, directory, cmdline)
}

func (p *Programs) learn(k nameKey, name string) {
	before, ok := p.byName[k]
	switch {
	case !ok && len(p.byName) >= p.max:
		p.evicted++
	case !ok:
		p.byName[k] = name
	case before != name:
		p.byName[k] = severalNames
	}
}

// makeRoom forgets all processes when there are too many: those in use are looked at again.
func (p *Programs) makeRoom() {
	if len(p.byID) >= p.max {
		p.evicted += uint64(len(p.byID))
		clear(p.byID)
	}
}

// Forget forgets a control group that is gone.
func (p *Programs) Forget(group model.CgroupID) {
	for k := range p.byID {
		if k.group == group {
			delete(p.byID, k)
		}
	}
	for k := range p.byName {
		if k.group == group {
			delete(p.byName, k)
		}
	}
}

// Drops reports how full the table of processes is, and what found no room in it.
func (p *Programs) Drops() []model.Drop {
	return []model.Drop{{Name: "processes", Count: p.evicted, Capacity: uint64(p.max),
		Used: uint64(max(len(p.byID), len(p.byName)))}}
}

// maxProgramName bounds the name of a program, in bytes.
const maxProgramName = 64

// commLength is where the kernel cuts a process's name.
const commLength = 15

// interpreter is a program that runs others: what to call a process of it.
type interpreter struct {
	// valued are the options that take the next argument as their value.
	valued []string
	// name is the option's that says what runs by its value, in place of a file ("-m" of Python).
	named []string
	// text are the options after which the program's text follows: there is nothing to name.
	text []string
	// suffixes are cut off the name of the file.
	suffixes []string
}

var interpreters = map[string]interpreter{
	"java": {
		valued: []string{"-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules",
			"--add-opens", "--add-exports", "--add-reads", "--patch-module", "--limit-modules", "--source",
			"--enable-native-access"},
		named: []string{"-jar", "-m", "--module"}, suffixes: []string{".jar"},
	},
	"python": {valued: []string{"-W", "-X", "--check-hash-based-pycs"}, named: []string{"-m"}, text: []string{"-c"}},
	"node": {
		valued: []string{"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions",
			"--env-file",
			"--icu-data-dir", "--input-type", "--title", "--openssl-config"},
		text: []string{"-e", "--eval", "-p", "--print", "-pe"},
	},
	"ruby": {valued: []string{"-I", "-r", "-C", "-E"}, text: []string{"-e"}},
	"perl": {valued: []string{"-I"}, text: []string{"-e", "-E"}},
	"php":  {valued: []string{"-c", "-d", "-S", "-t"}, text: []string{"-r"}},
	"dotnet": {valued: []string{"--fx-version", "--depsfile", "--runtimeconfig", "--additionalprobingpath"},
		named: []string{"exec"}, suffixes: []string{".dll"}},
}

// everyday are names of scripts that say nothing without their directory.
var everyday = []string{"index.js", "main.js", "server.js", "app.js", "main.py", "app.py", "server.py", "manage.py",
	"__main__.py"}

// programName is what to call a process: the main class or archive of a Java program, the script
// or module that an interpreter runs, else the name that the kernel knows, completed where the
// kernel has cut it. cmdline is the process's arguments, each ended by a zero byte, executable
// the file that it runs, directory its working directory; all may be empty.
func programName(comm, executable, directory string, cmdline []byte) string {
	args := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
	if in, ok := interpreterOf(path.Base(executable)); ok && len(args) > 1 {
		if program := in.program(args[1:], directory); program != "" {
			return cleanName(program)
		}
	}
	if name := path.Base(args[0]); len(comm) == commLength && strings.HasPrefix(name, comm) {
		return cleanName(name)
	}
	return cleanName(comm)
}

// interpreterOf knows an interpreter by its file, whatever version is in its name.
func interpreterOf(file string) (interpreter, bool) {
	file = strings.TrimSuffix(file, " (deleted)")
	in, ok := interpreters[strings.TrimRight(file, "0123456789.")]
	return in, ok
}

// program is what the arguments make an interpreter run; empty where they do not.
func (in *interpreter) program(args []string, directory string) string {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		option, value, joined := strings.Cut(arg, "=")
		switch {
		case arg == "--" && i+1 < len(args):
			return in.file(args[i+1], directory)
		case slices.Contains(in.text, arg):
			return ""
		case slices.Contains(in.named, option):
			if !joined && i+1 < len(args) {
				value = args[i+1]
			}
			return in.unit(value, directory)
		case slices.Contains(in.valued, arg):
			i++
		case !strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "@"):
			return in.file(arg, directory)
		}
	}
	return ""
}

// unit is the name of a module, a class of a module ("module/class"), or a file.
func (in *interpreter) unit(name, directory string) string {
	if slices.ContainsFunc(in.suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
		return in.file(name, directory)
	}
	return path.Base(name)
}

// file is the name of a script, archive or class, with its directory where the name alone says
// nothing.
func (in *interpreter) file(name, directory string) string {
	base := path.Base(name)
	if slices.Contains(everyday, base) {
		if !path.IsAbs(name) {
			name = path.Join(directory, name)
		}
		if parent := path.Base(path.Dir(name)); parent != "/" && parent != "." {
			base = parent + "/" + base
		}
	}
	for _, suffix := range in.suffixes {
		base = strings.TrimSuffix(base, suffix)
	}
	if base == "." || base == "/" {
		return ""
	}
	return base
}

// cleanName makes a name that another may have chosen fit to be a label: valid, printable and short.
func cleanName(name string) string { return model.Printable(name, maxProgramName) }
