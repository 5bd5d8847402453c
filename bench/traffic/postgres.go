package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// postgresPrograms is where Debian has them.
const postgresPrograms = "/usr/lib/postgresql/15/bin"

// nobody is who the database runs as: it refuses to run as root.
const nobody = 65534

// StartPostgres makes a new database cluster and serves it.
func StartPostgres(ctx context.Context) (*Server, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp("", "outsight-postgres-")
	if err != nil {
		return nil, err
	}
	clean := func() { os.RemoveAll(directory) }
	if err := os.Chown(directory, nobody, nobody); err != nil {
		clean()
		return nil, err
	}
	data := filepath.Join(directory, "data")
	unprivileged := func(command *exec.Cmd) *exec.Cmd {
		command.Dir = directory
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return command
	}
	if _, err := output(unprivileged(exec.CommandContext(ctx, filepath.Join(postgresPrograms, "initdb"),
		"-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8"))); err != nil {
		clean()
		return nil, err
	}
	// It listens before it is ready, and says in this file when it is.
	ready := func() bool {
		text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		return err == nil && strings.HasSuffix(strings.TrimSpace(string(text)), "ready")
	}
	return start(ctx, address, ready, clean,
		unprivileged(exec.CommandContext(ctx, filepath.Join(postgresPrograms, "postgres"),
			"-D", data, "-p", strconv.Itoa(int(address.Port())), "-c", "listen_addresses="+address.Addr().String(),
			"-c", "unix_socket_directories="+directory, "-c", "max_connections=5100", "-c", "shared_buffers=16MB",
			"-c", "fsync=off", "-c", "jit=off", "-c", "autovacuum=off")))
}

var pgbenchResult = regexp.MustCompile(`number of transactions actually processed: (\d+)`)

// Postgres lets pgbench ask PostgreSQL through a relay, which keeps the books of bytes. There
// are two services: the relay as pgbench's server, and the database as the relay's.
func Postgres(ctx context.Context, l Load) ([]Truth, error) {
	server, err := StartPostgres(ctx)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	relay, err := startRelay(ctx, server.Address)
	if err != nil {
		return nil, err
	}
	service := addressOf(relay.listener.Addr().String())
	queries, err := pgbench(ctx, service.Port(), l)
	relay.stop()
	if err != nil {
		return nil, err
	}
	total := relay.total()
	// A connection begins with a request of its own; its farewell is no request.
	total.Requests = queries + total.Connections
	truth := func(service netip.AddrPort) Truth {
		return Truth{Service: service, Client: total, Server: total}
	}
	return []Truth{truth(service), truth(server.Address)}, nil
}

// pgbench makes one query per transaction and returns their number.
func pgbench(ctx context.Context, port uint16, l Load) (uint64, error) {
	script, err := os.CreateTemp("", "outsight-pgbench-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(script.Name())
	fmt.Fprintln(script, "SELECT 1;")
	if err := script.Close(); err != nil {
		return 0, err
	}
	clients, each := l.Connections, l.Requests
	arguments := []string{"-h", "127.0.0.1", "-p", strconv.Itoa(int(port)), "-U", "postgres", "-n", "-f", script.Name()}
	if l.OneRequestEach {
		clients = min(atOnce, l.Connections)
		each = l.Connections / clients
		arguments = append(arguments, "-C")
	}
	arguments = append(arguments, "-c", strconv.Itoa(clients), "-t", strconv.Itoa(each), "postgres")
	command := withFiles(ctx, filepath.Join(postgresPrograms, "pgbench"), arguments...)
	command.Env = append(os.Environ(), "PGSSLMODE=disable", "PGGSSENCMODE=disable")
	text, err := output(command)
	if err != nil {
		return 0, err
	}
	found := pgbenchResult.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("no result of pgbench: %s", text)
	}
	queries, _ := strconv.Atoi(found[1])
	if queries != clients*each {
		return 0, fmt.Errorf("pgbench made %d queries, want %d: %s", queries, clients*each, text)
	}
	return uint64(queries), nil
}
