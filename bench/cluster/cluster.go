package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"outsight/internal/netns"
)

// Options are how large a cluster is.
type Options struct {
	// Name begins the names of containers and their image; it is to be of this process alone.
	Name string
	// Label is that of the containers, as Docker takes it.
	Label                string
	Hosts, Data, Workers int
	// Partition is the memory of a data node, Rows that of a worker, in bytes.
	Partition, Rows int64
	// Rate is what a host's uplink carries each way, in bytes per second.
	Rate int64
}

// Cluster is a running one. It is not for several goroutines.
type Cluster struct {
	options Options
	nodes   []node // data nodes, workers, the driver
	network *network
}

type node struct {
	name    string
	pid     int
	address netip.Addr
}

// Run is one run of a job.
type Run struct {
	// From and To are a window in which the job was done and nothing else: To is after its end.
	From, To time.Time
	// Took is the driver's time from the job's begin to its end.
	Took time.Duration
	// Sent is what left hosts.
	Sent Sent
}

// Start starts the containers of a cluster, which Deploy puts on hosts. Close ends it, also after an error of others.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{options: o}
	if err := c.image(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	add := func(role string, count int, memory int64) error {
		for i := range count {
			name := fmt.Sprintf("%s-%s-%d", o.Name, role, i)
			_, err := docker(ctx, "run", "-d", "--label", o.Label, "--network", "none", "--name", name, o.Name, "/node",
				strconv.FormatInt(memory, 10))
			if err != nil {
				return err
			}
			pid, err := docker(ctx, "inspect", "-f", "{{.State.Pid}}", name)
			if err != nil {
				return err
			}
			n := node{name: name, address: netip.AddrFrom4([4]byte{10, 210, 0, byte(len(c.nodes) + 1)})}
			if n.pid, err = strconv.Atoi(pid); err != nil || n.pid == 0 {
				return fmt.Errorf("container %s has the process %q", name, pid)
			}
			c.nodes = append(c.nodes, n)
		}
		return nil
	}
	err := add("data", o.Data, o.Partition)
	if err == nil {
		err = add("worker", o.Workers, o.Rows)
	}
	if err == nil {
		err = add("driver", 1, 0)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// image makes an image of the nodes' program alone.
func (c *Cluster) image(ctx context.Context) error {
	directory, err := os.MkdirTemp("", c.options.Name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	binary := filepath.Join(directory, "node")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "outsight/bench/cluster/node")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the cluster's program: %w: %s", err, output)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err = w.WriteHeader(&tar.Header{Name: "node", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = w.Write(program)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	load := exec.CommandContext(ctx, "docker", "import", "-", c.options.Name)
	load.Stdin = &archive
	if output, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("docker import: %w: %s", err, output)
	}
	return nil
}

func docker(ctx context.Context, arguments ...string) (string, error) {
	output, err := exec.CommandContext(ctx, "docker", arguments...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", arguments[0], err, output)
	}
	return strings.TrimSpace(string(output)), nil
}

// Names are those of the containers: data nodes, workers, the driver.
func (c *Cluster) Names() (names []string) {
	for _, n := range c.nodes {
		names = append(names, n.name)
	}
	return names
}

// Deploy puts each container on a host, in the order of Names, and waits until each can reach the others. The network is
// a new one: no host knows anything of an earlier placement.
func (c *Cluster) Deploy(at []int) error {
	if len(at) != len(c.nodes) {
		return fmt.Errorf("a placement of %d containers, want %d", len(at), len(c.nodes))
	}
	if err := c.disconnect(); err != nil {
		return err
	}
	var err error
	if c.network, err = newNetwork(c.options.Hosts, c.options.Rate); err != nil {
		return err
	}
	for i, n := range c.nodes {
		if err := c.network.hosts[at[i]].Connect(n.pid, n.address); err != nil {
			return fmt.Errorf("putting %s on host %d: %w", n.name, at[i], err)
		}
	}
	// Every worker calls all whom it calls in a job.
	_, err = c.call(Job{Scan: int64(100 * c.options.Data), Shuffle: int64(100 * c.options.Workers)})
	return err
}

func (c *Cluster) disconnect() error {
	if c.network == nil {
		return nil
	}
	err := c.network.close()
	c.network = nil
	return err
}

// Run runs a job where Deploy has put the containers.
func (c *Cluster) Run(j Job) (r Run, err error) {
	before, err := c.network.sent()
	if err != nil {
		return r, err
	}
	r.From = time.Now()
	if r.Took, err = c.call(j); err != nil {
		return r, err
	}
	// The last acknowledgements may still be under way.
	for last := (Sent{}); last != r.Sent || last == (Sent{}); {
		last = r.Sent
		time.Sleep(200 * time.Millisecond)
		now, err := c.network.sent()
		if err != nil {
			return r, err
		}
		r.Sent = Sent{now.Bytes - before.Bytes, now.Packets - before.Packets}
		if r.Sent == (Sent{}) {
			break // all is on one host
		}
	}
	r.To = time.Now()
	return r, nil
}

// call has the driver run a job. The connection is one within the driver's container.
func (c *Cluster) call(j Job) (took time.Duration, err error) {
	var addresses []string
	for _, n := range c.nodes {
		addresses = append(addresses, n.address.String())
	}
	data, rest := addresses[:c.options.Data], addresses[c.options.Data:]
	driver := c.nodes[len(c.nodes)-1]
	inside, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", driver.pid))
	if err != nil {
		return 0, err
	}
	defer inside.Close()
	var client *rpc.Client
	err = netns.Inside(inside, func() error {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(nodePort)), 20*time.Second)
		if err == nil {
			connection.SetDeadline(time.Now().Add(longestJob))
			client = rpc.NewClient(connection)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("calling the driver: %w", err)
	}
	defer client.Close()
	if err := client.Call("Node.Run", j.tasks(data, rest[:c.options.Workers], rest[c.options.Workers]), &took); err != nil {
		return 0, fmt.Errorf("job %q: %w", j.Name, err)
	}
	return took, nil
}

// longestJob bounds a job.
const longestJob = 2 * time.Minute

// Close removes the containers, their image and the network.
func (c *Cluster) Close() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	err := c.disconnect()
	ids, listing := docker(ctx, "ps", "-aq", "--filter", "name=^"+c.options.Name+"-")
	if err = errors.Join(err, listing); ids != "" {
		_, removing := docker(ctx, append([]string{"rm", "-f"}, strings.Fields(ids)...)...)
		err = errors.Join(err, removing)
	}
	if images, _ := docker(ctx, "images", "-q", c.options.Name); images != "" {
		_, removing := docker(ctx, "rmi", "-f", images)
		err = errors.Join(err, removing)
	}
	return err
}
