package traffic

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// StartRedis starts a Redis that keeps nothing. Its Unix socket tells what it counted.
func StartRedis(ctx context.Context) (server *Server, socket string, err error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, "", err
	}
	directory, err := os.MkdirTemp("", "outsight-redis-")
	if err != nil {
		return nil, "", err
	}
	socket = filepath.Join(directory, "redis.sock")
	server, err = start(ctx, address, listens(address), func() { os.RemoveAll(directory) },
		withFiles(ctx, "redis-server", "--bind", address.Addr().String(), "--port", strconv.Itoa(int(address.Port())),
			"--unixsocket", socket, "--save", "", "--dir", directory, "--maxclients", "10000", "--tcp-backlog", "4096"))
	return server, socket, err
}

// Redis lets redis-benchmark ask Redis; the books are those of Redis.
func Redis(ctx context.Context, l Load) ([]Truth, error) {
	server, socket, err := StartRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	arguments := []string{"-h", server.Address.Addr().String(), "-p", strconv.Itoa(int(server.Address.Port())), "-t",
		"get", "--csv"}
	requests := l.Connections * l.Requests
	if l.OneRequestEach {
		requests = l.Connections
		arguments = append(arguments, "-k", "0", "-c", strconv.Itoa(min(atOnce, l.Connections)))
	} else {
		arguments = append(arguments, "-c", strconv.Itoa(l.Connections))
	}
	if _, err := output(withFiles(ctx, "redis-benchmark",
		append(arguments, "-n", strconv.Itoa(requests))...)); err != nil {
		return nil, err
	}
	total, err := redisBooks(socket)
	if err != nil {
		return nil, err
	}
	if want := uint64(requests) + redisPreamble; total.Requests != want {
		return nil, fmt.Errorf("redis processed %d commands, want %d", total.Requests, want)
	}
	// The preamble's two commands travel together and are answered together.
	total.Requests -= redisPreamble - 1
	return []Truth{{Service: server.Address, Client: total, Server: total}}, nil
}

// redisPreamble are the commands that redis-benchmark asks first: CONFIG GET, twice.
const redisPreamble = 2

// redisBooks asks Redis by its Unix socket what it has counted, without what this takes.
func redisBooks(socket string) (Total, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return Total{}, err
	}
	defer conn.Close()
	const command = "INFO stats\r\n"
	if _, err := io.WriteString(conn, command); err != nil {
		return Total{}, err
	}
	reader := bufio.NewReader(conn)
	header, err := reader.ReadString('\n')
	if err != nil {
		return Total{}, err
	}
	size, err := strconv.Atoi(strings.Trim(header, "$\r\n"))
	if err != nil {
		return Total{}, fmt.Errorf("redis answers %q", header)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(reader, text); err != nil {
		return Total{}, err
	}
	stat := func(name string) uint64 {
		found := regexp.MustCompile(`(?m)^` + name + `:(\d+)`).FindSubmatch(text)
		if found == nil {
			err = fmt.Errorf("redis does not tell %s: %s", name, text)
			return 0
		}
		n, _ := strconv.ParseUint(string(found[1]), 10, 64)
		return n
	}
	t := Total{Connections: stat("total_connections_received") - 1, Requests: stat("total_commands_processed"),
		SentBytes: stat("total_net_input_bytes") - uint64(len(command)), ReceivedBytes: stat("total_net_output_bytes")}
	return t, err
}

func addressOf(address string) netip.AddrPort { return netip.MustParseAddrPort(address) }
