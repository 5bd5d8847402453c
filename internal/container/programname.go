package container

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"outsight/internal/model"
)

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
