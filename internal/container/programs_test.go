package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"outsight/internal/model"
)

func TestProgramName(t *testing.T) {
	f := func(comm, executable, directory, arguments, want string) {
		t.Helper()
		cmdline := strings.ReplaceAll(arguments, " ", "\x00") + "\x00"
		if got := programName(comm, executable, directory, []byte(cmdline)); got != want {
			t.Errorf("%s (%s): got %q, want %q", arguments, comm, got, want)
		}
	}
	f("nginx", "/usr/sbin/nginx", "/", "nginx: worker process", "nginx")
	f("nginx", "", "", "", "nginx")
	f("kube-controller", "/usr/bin/kube-controller-manager", "/", "/usr/bin/kube-controller-manager --v=2",
		"kube-controller-manager")
	f("something-else-", "/usr/bin/x", "/", "/usr/bin/x", "something-else-")
	f("java", "/opt/jdk/bin/java", "/", "java -Xmx1g -cp /a.jar:/b.jar com.example.Main -x", "com.example.Main")
	f("java", "/opt/jdk/bin/java", "/", "java -classpath /a --add-opens java.base/java.lang=ALL-UNNAMED -ea "+
		"com.example.Main", "com.example.Main")
	f("java", "/opt/jdk/bin/java", "/", "java -jar /srv/orders-1.2.jar --spring.x=y", "orders-1.2")
	f("java", "/opt/jdk/bin/java (deleted)", "/", "java --module-path /m --module shop/com.example.Main",
		"com.example.Main")
	f("java", "/opt/jdk/bin/java", "/", "java --module=shop/com.example.Main", "com.example.Main")
	f("java", "/opt/jdk/bin/java", "/", "java @/etc/options com.example.Main", "com.example.Main")
	f("java", "/opt/jdk/bin/java", "/", "java -version", "java")
	f("python3", "/usr/bin/python3.11", "/", "python3 -u -W ignore /srv/pay.py", "pay.py")
	f("gunicorn", "/usr/bin/python3.11", "/", "/usr/bin/python3 /usr/bin/gunicorn -w 4 app:app", "gunicorn")
	f("python3", "/usr/bin/python3.11", "/srv/cart", "python3 app.py", "cart/app.py")
	f("python3", "/usr/bin/python3.11", "/", "python3 -m celery worker", "celery")
	f("python3", "/usr/bin/python3.11", "/", "python3 -c print(1) x.py", "python3")
	f("python3", "/usr/bin/python3.11", "/", "python3", "python3")
	f("node", "/usr/bin/node", "/srv/web", "node --import ./trace.js --inspect=9229 dist/server.js", "dist/server.js")
	f("node", "/usr/bin/node", "/srv/web", "node .", "node")
	f("node", "/usr/bin/node", "/srv/web", "node -- worker.js", "worker.js")
	f("node", "/usr/bin/node", "/", "node index.js", "index.js")
	f("dotnet", "/usr/bin/dotnet", "/", "dotnet /srv/Shop.Api.dll --urls x", "Shop.Api")
	f("php-fpm8.2", "/usr/sbin/php-fpm8.2", "/", "php-fpm: pool www", "php-fpm8.2")
	f("ruby", "/usr/bin/ruby3.1", "/", "ruby -I lib /srv/bin/rails server", "rails")
	f("perl", "/usr/bin/perl", "/", "perl /srv/"+strings.Repeat("é", 40)+".pl", strings.Repeat("é", 30)+"…")
	f("perl", "/usr/bin/perl", "/", "perl /srv/a\x1b[31mb.pl", "a�[31mb.pl")
}

// The arguments of real processes of this machine's runtimes.
func TestProgramNameOfRealProcesses(t *testing.T) {
	for file, want := range map[string]struct{ comm, executable, directory, name string }{
		"java":   {"java", "/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "/srv", "shop.orders.Ledger"},
		"node":   {"node", "/usr/bin/node", "/srv/orders", "orders/index.js"},
		"python": {"python3", "/usr/bin/python3.11", "/", "work.py"},
		"module": {"python3", "/usr/bin/python3.11", "/", "http.server"},
	} {
		cmdline, err := os.ReadFile(filepath.Join("testdata/cmdline", file))
		if err != nil {
			t.Fatal(err)
		}
		if got := programName(want.comm, want.executable, want.directory, cmdline); got != want.name {
			t.Errorf("%s: got %q, want %q", file, got, want.name)
		}
	}
}

func FuzzProgramName(f *testing.F) {
	files, _ := filepath.Glob("testdata/cmdline/*")
	for _, file := range files {
		cmdline, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("java", "/usr/bin/"+filepath.Base(file), "/srv", cmdline)
	}
	f.Add("fifteen-letters", "/x", "", []byte("/x/fifteen-letters-and-more\x00"))
	f.Fuzz(func(t *testing.T, comm, executable, directory string, cmdline []byte) {
		name := programName(comm, executable, directory, cmdline)
		if len(name) > maxProgramName || !utf8.ValidString(name) || strings.ContainsAny(name, "\x00\n\r\x1b") {
			t.Errorf("%q is no label", name)
		}
		if name == "" && strings.TrimSpace(comm) != "" {
			t.Errorf("a process %q has no name", comm)
		}
	})
}

// perl runs a script that sleeps until its standard input ends.
func perl(t *testing.T, name string) (pid int, stop func()) {
	t.Helper()
	script := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(script, []byte("print \"ready\\n\"; close STDOUT; <STDIN>;"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("perl", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		in.Close()
		cmd.Wait()
	}
	t.Cleanup(stop)
	var line [6]byte
	if _, err := out.Read(line[:]); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, stop
}

func TestProgramsOfProcesses(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := NewPrograms(ProgramOptions{Now: func() time.Time { return now }})
	expect := func(group model.CgroupID, comm string, pid int, want string) {
		t.Helper()
		if got := p.Name(group, comm, pid); got != want {
			t.Errorf("%s, process %d of group %d: got %q, want %q", comm, pid, group, got, want)
		}
	}
	expect(1, "perl", 0, "perl")
	cart, stop := perl(t, "cart.pl")
	expect(1, "perl", cart, "cart.pl")
	expect(1, "perl", 0, "cart.pl")
	expect(2, "perl", 0, "perl")
	expect(1, "redis-server", cart, "redis-server")
	stop()
	now = now.Add(2 * recheckAfter)
	expect(1, "perl", cart, "cart.pl") // it is gone and keeps its name
	order, _ := perl(t, "order.pl")
	expect(1, "perl", order, "order.pl")
	expect(1, "perl", 0, "perl") // one of two programs
	p.Forget(1)
	expect(1, "perl", 0, "perl")
	expect(1, "perl", cart, "perl")
	expect(1, "perl", order, "order.pl")
}

func TestProgramsAreBounded(t *testing.T) {
	p := NewPrograms(ProgramOptions{Max: 3})
	for group := range 10 {
		if got := p.Name(model.CgroupID(group), "container.test", os.Getpid()); got != "container.test" {
			t.Errorf("got %q", got)
		}
	}
	if d := p.Drops()[0]; d.Used > 3 || d.Capacity != 3 || d.Count == 0 {
		t.Errorf("got %+v", d)
	}
}
