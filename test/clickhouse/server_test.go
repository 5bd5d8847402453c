package clickhouse

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// engines are the servers that are tested: the oldest that works, of Debian, and the newest engine, of PyPI.
var engines = []struct {
	name  string
	start func(t *testing.T) engine
}{{"server", startServer}, {"chdb", startChDB}}

// engine is one that runs.
type engine struct {
	address string // of Open, without a database
	pid     int
}

// cpu is the CPU time that it has used.
func (e engine) cpu(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", e.pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// ask carries out a statement, and answers its result.
func (e engine) ask(t *testing.T, statement string) string {
	t.Helper()
	address := strings.Replace(strings.Replace(e.address, "clickhouse", "http", 1), "default:secret@", "", 1)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(statement))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-ClickHouse-User", "default")
	r.Header.Set("X-ClickHouse-Key", "secret")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", statement, reply.Status, text, err)
	}
	return string(text)
}

const config = `<yandex>
<logger><level>warning</level><log>%[1]s/log</log><errorlog>%[1]s/errors</errorlog></logger>
<http_port>%[2]d</http_port><tcp_port>%[3]d</tcp_port><listen_host>127.0.0.1</listen_host>
<path>%[1]s/data/</path><tmp_path>%[1]s/tmp/</tmp_path><users_config>%[1]s/users.xml</users_config>
<default_profile>default</default_profile><default_database>default</default_database>
<mark_cache_size>100000000</mark_cache_size>
</yandex>`

const users = `<yandex><profiles><default></default></profiles><users><default><password>secret</password>
<networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
<quotas><default></default></quotas></yandex>`

// startServer starts Debian's clickhouse-server and answers its address.
func startServer(t *testing.T) engine {
	t.Helper()
	dir := t.TempDir()
	port, tcp := freePort(t), freePort(t)
	write(t, filepath.Join(dir, "config.xml"), fmt.Sprintf(config, dir, port, tcp))
	write(t, filepath.Join(dir, "users.xml"), users)
	server := exec.Command("clickhouse-server", "--config-file="+filepath.Join(dir, "config.xml"))
	server.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin")
	if path, err := exec.LookPath("/usr/sbin/clickhouse-server"); err == nil {
		server.Path, server.Err = path, nil
	}
	run(t, server)
	waitFor(t, fmt.Sprintf("http://127.0.0.1:%d/", port))
	return engine{fmt.Sprintf("clickhouse://default:secret@127.0.0.1:%d/", port), server.Process.Pid}
}

// python is the interpreter that has chDB, which make test-clickhouse installs.
func python() string {
	if path := os.Getenv("OUTSIGHT_CHDB_PYTHON"); path != "" {
		return path
	}
	return "python3"
}

// startChDB starts a server of chDB and answers its address.
func startChDB(t *testing.T) engine {
	t.Helper()
	server := exec.Command(python(), "chdb_server.py", t.TempDir())
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	problems := run(t, server)
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("chDB did not start: %v\n%s", err, problems)
	}
	return engine{"clickhouse://127.0.0.1:" + strings.TrimSpace(line) + "/", server.Process.Pid}
}

// run starts a command, which is killed when the test ends, and answers what it prints as errors.
func run(t *testing.T, c *exec.Cmd) *bytes.Buffer {
	t.Helper()
	var problems bytes.Buffer
	c.Stderr = &problems
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return &problems
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func waitFor(t *testing.T, address string) {
	t.Helper()
	for range 300 {
		if reply, err := http.Get(address + "ping"); err == nil {
			reply.Body.Close()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("clickhouse-server did not start")
}
