package demo

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func realReplies(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/redis-replies.txt")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadRedisReply(t *testing.T) {
	r := bufio.NewReader(bytes.NewReader(realReplies(t)))
	f := func(want any, wantErr string) {
		t.Helper()
		got, err := readRedisReply(r, 0)
		if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("error %v, want %q", err, wantErr)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %#v, want %#v", got, want)
		}
	}
	f(int64(2), "")
	f([]any{"one", "two"}, "")
	f(nil, "")
	f(nil, "WRONGTYPE")
	f("OK", "")
	f(int64(1), "")
	f([]any{}, "")
	f(nil, "")
	f(nil, "EOF")
}

func TestReadRedisReplyRefuses(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		_, err := readRedisReply(bufio.NewReader(strings.NewReader(in)), 0)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
	f("$5\r\nabc\r\n", "EOF")
	f("$3\r\nabcde\r\n", "goes on with")
	f("$-2\r\n", "not a reply")
	f("$99999999999\r\n", "not a reply")
	f("*99999999999\r\n", "not a reply")
	f(strings.Repeat("*1\r\n", 9)+":1\r\n", "not a reply")
	f(":x\r\n", "number")
	f("\r\n", "malformed")
	f("+OK\n", "malformed")
	f("+"+strings.Repeat("x", 8192)+"\r\n", "buffer full")
}

func FuzzReadRedisReply(f *testing.F) {
	f.Add(realReplies(f))
	f.Add([]byte("*2\r\n-ERR no\r\n$-1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		for {
			if _, err := readRedisReply(r, 0); err != nil {
				if _, refused := err.(redisError); !refused {
					return
				}
			}
		}
	})
}

// realRedis runs Redis at a socket and returns a client.
func realRedis(t *testing.T, l *ledger) *redisClient {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "redis")
	redis := exec.Command(findProgram("redis-server"), "--port", "0", "--unixsocket", socket, "--save", "", "--dir",
		t.TempDir())
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		redis.Process.Kill()
		redis.Wait()
	})
	waitFor(t, "Redis", func() bool { _, err := os.Stat(socket); return err == nil })
	c := newRedisClient(socket, l)
	c.network = "unix"
	t.Cleanup(c.closeIdle)
	return c
}

func TestRedisClientCounts(t *testing.T) {
	l := newLedger()
	c := realRedis(t, l)
	f := func(want any, command ...string) {
		t.Helper()
		if got, err := c.do(t.Context(), command...); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %#v %v, want %#v", command, got, err, want)
		}
	}
	f("OK", "SET", "a", strings.Repeat("x", 100_000))
	f(strings.Repeat("x", 100_000), "GET", "a")
	f(int64(1), "LPUSH", "list", "one\r\ntwo")
	f("one\r\ntwo", "RPOP", "list")
	if _, err := c.do(t.Context(), "NONSENSE"); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("nonsense: %v", err)
	}
	f(nil, "GET", "b")
	calls, _ := l.counts()
	if got := calls["redis"]; got.Requests != 6 || got.Opened != 1 || got.Closed != 0 || got.ReceivedBytes < 100_000 ||
		got.SentBytes < 100_000 {
		t.Errorf("counts %+v", got)
	}
	c.closeIdle()
	f(nil, "GET", "b")
	calls, _ = l.counts()
	if got := calls["redis"]; got.Opened != 2 || got.Closed != 1 {
		t.Errorf("counts after closing %+v", got)
	}
}

func TestRedisClientFailure(t *testing.T) {
	l := newLedger()
	c := newRedisClient(filepath.Join(t.TempDir(), "nobody"), l)
	c.network = "unix"
	for range maxRedisConns + 1 { // each failure releases its connection
		if _, err := c.do(t.Context(), "GET", "a"); err == nil {
			t.Fatal("no error")
		}
	}
	calls, _ := l.counts()
	if got := calls["redis"]; got != (Counts{Failures: maxRedisConns + 1}) {
		t.Errorf("counts %+v", got)
	}
}
