package cluster

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/rpc"
	"strconv"
	"sync"
	"time"
)

const (
	nodePort = 7000
	// blockBytes is how much one call reads or passes on.
	blockBytes = 256 << 10
	// homeShare is the share of what a worker reads that is on one data node; the rest is evenly on the others.
	homeShare = 0.7
	// resultShare is the size of a worker's result, by what it reads.
	resultShare = 0.01
)

// Job is what each worker of a cluster does at the same time, in bytes.
type Job struct {
	Name string
	// Scan is what a worker reads from the data nodes.
	Scan int64
	// Shuffle is what a worker passes on to the others, evenly.
	Shuffle int64
}

// Node is a process of the cluster, as others call it.
type Node struct {
	memory []byte // the partition of a data node, the rows of a worker

	mu  sync.Mutex // guards sum
	sum uint32
}

// Task is a worker's part of a job: bytes by the address of the node.
type Task struct {
	Read, Send map[string]int64
	// Driver gets the result, of so many bytes.
	Driver string
	Result int64
}

// Work is a job as the driver gets it: a task by the address of each worker.
type Work map[string]Task

// Serve is a node with so many bytes of memory, which answers until it is ended.
func Serve(size int64) error {
	n := &Node{memory: make([]byte, max(size, blockBytes))}
	for i := range n.memory {
		n.memory[i] = byte(i * 7)
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Node", n); err != nil {
		return err
	}
	l, err := net.Listen("tcp", ":"+strconv.Itoa(nodePort))
	if err != nil {
		return err
	}
	server.Accept(l)
	return errors.New("no longer listening")
}

// Block is a part of the node's memory, which ends at most so many bytes after its beginning.
func (n *Node) Block(size int64, block *[]byte) error {
	*block = n.memory[:min(size, blockBytes)]
	return nil
}

// Take takes rows of another node.
func (n *Node) Take(rows []byte, _ *struct{}) error {
	n.use(rows)
	return nil
}

// use looks at rows.
func (n *Node) use(rows []byte) {
	sum := crc32.ChecksumIEEE(rows)
	n.mu.Lock()
	n.sum ^= sum
	n.mu.Unlock()
}

// Do does a worker's task: it reads, then passes rows on, and then gives its result to the driver.
func (n *Node) Do(t Task, _ *struct{}) error {
	err := together(t.Read, func(at string, size int64) error {
		return calls(at, size, func(c *rpc.Client, size int64) error {
			var block []byte
			if err := c.Call("Node.Block", size, &block); err != nil {
				return err
			}
			n.use(block)
			return nil
		})
	})
	if err != nil {
		return err
	}
	pass := func(at string, size int64) error {
		return calls(at, size, func(c *rpc.Client, size int64) error {
			return c.Call("Node.Take", n.memory[:size], &struct{}{})
		})
	}
	if err := together(t.Send, pass); err != nil {
		return err
	}
	return pass(t.Driver, t.Result)
}

// Run is of the driver: all workers do their tasks at once. It answers with the time that this took.
func (n *Node) Run(w Work, took *time.Duration) error {
	begin := time.Now()
	err := together(w, func(at string, t Task) error {
		c, err := dial(at)
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Call("Node.Do", t, &struct{}{})
	})
	*took = time.Since(begin)
	return err
}

// together does something for each address at the same time.
func together[V any](all map[string]V, do func(at string, v V) error) error {
	errs := make(chan error, len(all))
	for at, v := range all {
		go func() {
			err := do(at, v)
			if err != nil {
				err = fmt.Errorf("node %s: %w", at, err)
			}
			errs <- err
		}()
	}
	var joined error
	for range all {
		joined = errors.Join(joined, <-errs)
	}
	return joined
}

// calls calls a node for each block of so many bytes, over a connection of its own.
func calls(at string, size int64, call func(c *rpc.Client, size int64) error) error {
	c, err := dial(at)
	if err != nil {
		return err
	}
	defer c.Close()
	for ; size > 0; size -= blockBytes {
		if err := call(c, min(size, blockBytes)); err != nil {
			return err
		}
	}
	return nil
}

func dial(at string) (*rpc.Client, error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(at, strconv.Itoa(nodePort)), 20*time.Second)
	if err != nil {
		return nil, err
	}
	return rpc.NewClient(c), nil
}

// tasks are the tasks of a job by the address of the worker.
func (j Job) tasks(data, workers []string, driver string) Work {
	w := Work{}
	for i, worker := range workers {
		t := Task{Read: map[string]int64{}, Send: map[string]int64{}, Driver: driver,
			Result: int64(resultShare * float64(j.Scan))}
		home, rest := (i+1)%len(data), j.Scan
		if len(data) > 1 {
			rest = int64(homeShare * float64(j.Scan))
		}
		t.Read[data[home]] = rest
		for k, d := range data {
			if k != home {
				t.Read[d] = (j.Scan - rest) / int64(len(data)-1)
			}
		}
		for k, other := range workers {
			if k != i {
				t.Send[other] = j.Shuffle / int64(len(workers)-1)
			}
		}
		w[worker] = t
	}
	return w
}
