// Package natscluster runs a cluster of NATS servers with JetStream in this process, for tests and measurements of
// several servers that share one.
package natscluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"outsight/bench/traffic"
)

// Cluster are NATS servers at 127.0.0.1.
type Cluster struct{ servers []*natsserver.Server }

// Start starts nodes, which keep what they have below dir. It waits until clients may connect.
func Start(nodes int, dir string) (*Cluster, error) {
	c := &Cluster{}
	var routes []string
	ports := make([]int, nodes)
	for i := range ports {
		address, err := traffic.FreeAddress()
		if err != nil {
			return nil, err
		}
		ports[i] = int(address.Port())
		routes = append(routes, fmt.Sprint("nats://", address))
	}
	for i, port := range ports {
		name := fmt.Sprint("node", i)
		s, err := natsserver.NewServer(&natsserver.Options{ServerName: name, Host: "127.0.0.1", Port: -1, NoSigs: true,
			MaxPayload: 8 << 20, JetStream: true, StoreDir: filepath.Join(dir, name), JetStreamMaxStore: 8 << 30,
			Cluster: natsserver.ClusterOpts{Name: "outsight", Host: "127.0.0.1", Port: port},
			Routes:  natsserver.RoutesFromStr(strings.Join(routes, ","))})
		if err != nil {
			c.Stop()
			return nil, fmt.Errorf("starting a NATS server: %w", err)
		}
		c.servers = append(c.servers, s)
		s.Start()
	}
	for _, s := range c.servers {
		if !s.ReadyForConnections(time.Minute) {
			c.Stop()
			return nil, errors.New("a NATS server does not answer within a minute")
		}
	}
	return c, nil
}

// URLs are those of all nodes, with commas between them.
func (c *Cluster) URLs() string {
	var all []string
	for _, s := range c.servers {
		all = append(all, s.ClientURL())
	}
	return strings.Join(all, ",")
}

// StopNode ends one node.
func (c *Cluster) StopNode(number int) {
	c.servers[number].Shutdown()
	c.servers[number].WaitForShutdown()
}

// Stop ends all nodes.
func (c *Cluster) Stop() {
	for _, s := range c.servers {
		s.Shutdown()
		s.WaitForShutdown()
	}
}
