//go:build long

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// redisConnection is one to a Redis server that counts the bytes which it sends and receives.
type redisConnection struct {
	t              *testing.T
	conn           net.Conn
	replies        *bufio.Reader
	sent, received int
}

func dialRedis(t *testing.T, address string) (c *redisConnection) {
	t.Helper()
	eventually(t, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			c = &redisConnection{t: t, conn: conn, replies: bufio.NewReader(conn)}
		}
		return err
	})
	t.Cleanup(func() { c.conn.Close() })
	return c
}

// command sends words and returns the reply, which is a line or a bulk string.
func (c *redisConnection) command(words ...string) string {
	c.t.Helper()
	var request bytes.Buffer
	fmt.Fprintf(&request, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(w), w)
	}
	n, err := c.conn.Write(request.Bytes())
	if err != nil {
		c.t.Fatal(err)
	}
	c.sent += n
	line, err := c.replies.ReadString('\n')
	if err != nil {
		c.t.Fatalf("%q: %v", words, err)
	}
	c.received += len(line)
	length, bulk := strings.CutPrefix(strings.TrimSpace(line), "$")
	switch {
	case strings.HasPrefix(line, "-"):
		c.t.Fatalf("%q: %s", words, line)
	case !bulk || length == "-1":
		return strings.TrimSpace(line)
	}
	size, err := strconv.Atoi(length)
	if err != nil {
		c.t.Fatalf("%q: a bulk string of %q bytes", words, length)
	}
	text := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(c.replies, text); err != nil {
		c.t.Fatal(err)
	}
	c.received += len(text)
	return string(text[:size])
}

var infoNumber = regexp.MustCompile(`(?m)^(\w+):(\d+)\r$`)

// TestRedisStatisticsInRegion builds Debian's Redis with examples/redis/statistics.patch and lets it run in a container.
// Its own statistics, which nobody asks it for, equal what its clients have sent, and what it says in INFO when it is asked
// afterwards; also after a fork, which has the statistics twice, and while it is frozen.
func TestRedisStatisticsInRegion(t *testing.T) {
	directory := t.TempDir()
	build := exec.Command("../../examples/redis/build", directory)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building Redis: %v\n%s", err, output)
	}
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	o := shared(t)
	c := start(t, "redis", []string{"-v", directory + ":/redis:ro", "-w", "/data"}, "/redis/redis-server", "--save", "",
		"--protected-mode", "no")
	address := net.JoinHostPort(docker(t, "inspect", "--format", "{{.NetworkSettings.IPAddress}}", c.name), "6379")

	want := map[string]float64{}
	is := func(when string) {
		t.Helper()
		eventually(t, func() error {
			metrics, err := o.metrics()
			if err != nil {
				return err
			}
			for name, value := range want {
				series := "app_redis_" + name + "_total"
				found := metrics.find(series, map[string]string{"name": c.name})
				if len(found) != 1 || found[0].value != value {
					return fmt.Errorf("%s: %s is %v, want %v", when, series, found, value)
				}
			}
			return nil
		})
	}
	const connections, keys, expired = 7, 300, 20
	var all []*redisConnection
	commands, hits, misses := 0, 0, 0
	for i := range connections {
		r := dialRedis(t, address)
		all = append(all, r)
		for k := range keys {
			key := fmt.Sprintf("key:%d:%d", i, k)
			r.command("SET", key, strings.Repeat("x", k))
			if got := r.command("GET", key); len(got) != k {
				t.Fatalf("%s has %d bytes, want %d", key, len(got), k)
			}
			if k%3 == 0 {
				r.command("GET", "none:"+key)
				misses, commands = misses+1, commands+1
			}
			hits, commands = hits+1, commands+2
		}
	}
	last := all[len(all)-1]
	for k := range expired {
		last.command("SET", fmt.Sprint("brief:", k), "x", "PX", "1")
		commands++
	}
	expect := func() {
		sent, received := 0, 0
		for _, r := range all {
			sent, received = sent+r.sent, received+r.received
		}
		for name, value := range map[string]int{"commands_processed": commands, "connections_received": connections,
			"keyspace_hits": hits, "keyspace_misses": misses, "net_input_bytes": sent, "net_output_bytes": received,
			"expired_keys": expired, "evicted_keys": 0} {
			want[name] = float64(value)
		}
	}
	expect()
	is("after the load")

	// INFO says what was before itself, except that it has been received.
	before := last.sent
	info := map[string]float64{}
	for _, found := range infoNumber.FindAllStringSubmatch(last.command("INFO", "stats"), -1) {
		info[found[1]], _ = strconv.ParseFloat(found[2], 64)
	}
	for name, value := range map[string]float64{
		"total_commands_processed": want["commands_processed"], "total_connections_received": want["connections_received"],
		"keyspace_hits": want["keyspace_hits"], "keyspace_misses": want["keyspace_misses"],
		"total_net_input_bytes":  want["net_input_bytes"] + float64(last.sent-before),
		"total_net_output_bytes": want["net_output_bytes"], "expired_keys": want["expired_keys"],
		"evicted_keys": want["evicted_keys"],
	} {
		if got, there := info[name]; !there || got != value {
			t.Errorf("INFO: %s is %v (%v), want %v", name, got, there, value)
		}
	}
	commands++
	expect()
	is("after INFO")

	last.command("BGSAVE")
	commands++
	eventually(t, func() error {
		text := last.command("INFO", "persistence")
		commands++
		if !strings.Contains(text, "rdb_bgsave_in_progress:0\r\n") || !strings.Contains(text, "rdb_last_bgsave_status:ok\r\n") {
			return fmt.Errorf("it has not saved: %s", text)
		}
		return nil
	})
	expect()
	is("after a fork")
	for name, value := range want {
		if name == "evicted_keys" {
			continue // 0 is not stored
		}
		eventually(t, func() error {
			if got := o.query(fmt.Sprintf("app_redis_%s_total{name=%q}", name, c.name)); len(got) != 1 || got[0].value != value {
				return fmt.Errorf("PromQL has %s = %v, want %v", name, got, value)
			}
			return nil
		})
	}

	// A server that is frozen answers no INFO.
	last.command("SET", "last", "x")
	commands++
	docker(t, "pause", c.name)
	t.Cleanup(func() { exec.Command("docker", "unpause", c.name).Run() })
	expect()
	is("while it is frozen")
}
