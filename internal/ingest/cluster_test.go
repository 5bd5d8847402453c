package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"outsight/internal/queue"
)

// nodes of a cluster.
const nodes = 3

// natsNode is one NATS server of a cluster until it is killed: about is its number, and after it the
// address, the ports for clients and those for the others of the cluster.
func natsNode(dir, about string) error {
	var n int
	var host string
	var clients, others [nodes]int
	if _, err := fmt.Sscan(about, &n, &host, &clients[0], &clients[1], &clients[2], &others[0], &others[1],
		&others[2]); err != nil {
		return err
	}
	var routes []string
	for _, port := range others {
		routes = append(routes, fmt.Sprintf("nats://%s:%d", host, port))
	}
	s, err := natsserver.NewServer(&natsserver.Options{
		ServerName: fmt.Sprint("node", n), Host: host, Port: clients[n], NoSigs: true, MaxPayload: 8 << 20,
		JetStream: true, StoreDir: dir, JetStreamMaxStore: 1 << 30, JetStreamMaxMemory: 64 << 20,
		Cluster: natsserver.ClusterOpts{Name: "outsight", Host: host, Port: others[n]},
		Routes:  natsserver.RoutesFromStr(strings.Join(routes, ",")),
	})
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return errors.New("the node ended")
}

// ownHost is an address of loopback on which this process and its children alone listen. A port of 127.0.0.1 that a
// killed server leaves for a moment may become that of an outgoing connection, which ends at 127.0.0.1 too; then the
// server cannot start again.
var ownHost = net.IPv4(127, byte(64+os.Getpid()>>16&63), byte(os.Getpid()>>8), byte(os.Getpid())).String()

// freePorts are ports of ownHost that nobody has now.
func freePorts(t testing.TB, n int) (all []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", ownHost+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return all
}

func TestFreePortsStayFree(t *testing.T) {
	port := freePorts(t, 1)[0]
	local, err := net.ResolveTCPAddr("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	outgoing, err := (&net.Dialer{LocalAddr: local}).Dial("tcp", elsewhere.Addr().String())
	if err != nil {
		t.Skipf("the port is taken at 127.0.0.1 just now: %v", err)
	}
	defer outgoing.Close()
	l, err := net.Listen("tcp", net.JoinHostPort(ownHost, port))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// startCluster starts the nodes and tells where one connects to them.
func startCluster(t testing.TB) (all [nodes]*process, urls string) {
	t.Helper()
	ports := freePorts(t, 2*nodes)
	for n := range all {
		all[n] = &process{role: "nats", dir: t.TempDir(), address: fmt.Sprint(n, " ", ownHost, " ",
			strings.Join(ports, " ")), out: outputFile(t, fmt.Sprint("node", n))}
		all[n].start(t)
	}
	t.Cleanup(func() {
		for _, p := range all {
			p.end()
		}
	})
	for _, port := range ports[:nodes] {
		waitFor(t, "the port "+port, func() bool {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(ownHost, port), time.Second)
			if err == nil {
				c.Close()
			}
			return err == nil
		}, all[:]...)
	}
	return all, "nats://" + ownHost + ":" + strings.Join(ports[:nodes], ",nats://"+ownHost+":")
}

// TestCluster: a queue has as many copies as it was told, and keeps them where it is told nothing; and with copies it
// hands out all of a backlog.
func TestCluster(t *testing.T) {
	all, urls := startCluster(t)
	conn, err := queue.Connect(queue.Server{URL: urls}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Run("keeps its copies", func(t *testing.T) { keepsItsCopies(t, conn) })
	t.Run("hands out a backlog", func(t *testing.T) { handsOutABacklog(t, conn, all[:]) })
}

func keepsItsCopies(t *testing.T, conn *nats.Conn) {
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	f := func(wanted, copies int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := queue.Open(ctx, conn, queue.Options{Replicas: wanted, MaxBytes: 1 << 20,
			MaxDeadLetterBytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"OUTSIGHT", "OUTSIGHT-ASIDE"} {
			s, err := js.Stream(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if n := s.CachedInfo().Config.Replicas; n != copies {
				t.Errorf("%s has %d copies where %d are wanted, want %d", name, n, wanted, copies)
			}
		}
	}
	f(0, 1)
	f(3, 3)
	f(0, 3)
}

// handsOutABacklog publishes more than is handed out at a time, before anybody reads. Nothing is handed out twice: a
// message that was lost on its way would come again after AckWait.
func handsOutABacklog(t *testing.T, conn *nats.Conn, all []*process) {
	const messages = 1000
	opening, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	q, err := queue.Open(opening, conn, queue.Options{Stream: "BACKLOG", Replicas: nodes, MaxBytes: 8 << 20,
		MaxDeadLetterBytes: 1 << 20,
		AckWait:            time.Hour, PublishTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for n := range messages {
		if _, err := q.Publish(t.Context(), queue.Message{ID: strconv.Itoa(n), Data: []byte(strconv.Itoa(n))}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	var handed atomic.Int64
	reading, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q.Consume(reading, func(_ context.Context, group []*queue.Delivery) error {
			for _, d := range group {
				got = append(got, string(d.Data))
			}
			handed.Add(int64(len(group)))
			return nil
		})
	}()
	defer func() { stop(); <-ended }()
	waitFor(t, "the backlog", func() bool { return handed.Load() >= messages }, all...)
	stop()
	<-ended
	for n, text := range got {
		if text != strconv.Itoa(n) {
			t.Fatalf("message %d is %q", n, text)
		}
	}
}
