package container

import (
	"bytes"
	"cmp"
	"os"
	"path"
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
