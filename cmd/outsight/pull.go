package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/agent"
	"outsight/internal/framelog"
	"outsight/internal/ingest"
	"outsight/internal/pull"
	"outsight/internal/queue"
	"outsight/internal/region/credit"
)

// pullFlags say which hosts a server reads by itself.
type pullFlags struct {
	addresses     []string
	file, keyFile string
	interval      time.Duration
	credit        byteSize
	dial          pull.DialOptions
	group         string
	// hosts are those of addresses and file.
	hosts []pull.Host
}

func (f *pullFlags) add(c *cobra.Command) {
	f.credit = 256 << 10
	flags := c.Flags()
	flags.StringSliceVar(&f.addresses, "pull", nil, "hosts whose kernel's counters this server reads by itself, as HOST:PORT "+
		"with commas between them: --region-listen of their agents")
	flags.StringVar(&f.file, "pull-file", "", "file of such hosts, one a line: HOST:PORT, and after spaces interval=100ms and "+
		"tenant=NAME where they are not those of all")
	flags.StringVar(&f.keyFile, "pull-key-file", "", "file whose first key is used for them: a line of a number and "+
		"hexadecimal digits, as in --region-key-file of the agents")
	flags.DurationVar(&f.interval, "pull-interval", time.Second, "time between two readings of a host, 10ms to 1m")
	flags.Var(&f.credit, "pull-credit", "how much is read at a time of all hosts together (Credit-FC), shared by those that "+
		"are being read; 0: no bound")
	flags.StringVar(&f.dial.Transport, "pull-transport", pull.TransportAuto, "how they are read: kernel (packets that the "+
		"host's kernel answers, whatever its processes do), tcp (its agent answers), rdma (its network card answers), or auto "+
		"(kernel where it answers, else tcp)")
	flags.StringVar(&f.dial.Device, "pull-rdma-device", "", "RDMA device of this host for --pull-transport rdma, as in "+
		"\"rdma link\" (default: the first with an active port)")
	flags.StringVar(&f.group, "pull-group", "OUTSIGHT-PULL", "with --nats, servers of the same name share the hosts among "+
		"them: where one ends, others read its hosts")
}

// check finds the hosts.
func (f *pullFlags) check(o *serverOptions) (err error) {
	if err := f.read(); err != nil {
		return err
	}
	if len(f.hosts) == 0 {
		if f.keyFile != "" {
			return usagef("--pull-key-file is for hosts that --pull or --pull-file names, and there is none")
		}
		return nil
	}
	switch {
	case !o.any():
		return usagef("--pull needs the queue of what comes: give an address to --otlp or --otlp-http")
	case f.keyFile == "":
		return usagef("--pull needs --pull-key-file")
	case f.credit != 0 && f.credit < credit.Fragment:
		return usagef("--pull-credit is %d bytes, want 0, or %d or more", f.credit, credit.Fragment)
	case o.nats.URL != "" && (o.storeFlags.isSet() || o.where != "" || o.bucket != ""):
		return usagef("--pull with --nats is for servers that each keep what all of them read: not with --store, --frames and " +
			"--frame-bucket, which several servers may have in common")
	}
	return oneOf("pull-transport", f.dial.Transport, pull.Transports...)
}

func (f *pullFlags) read() error {
	f.hosts = nil
	for _, address := range f.addresses {
		f.hosts = append(f.hosts, pull.Host{Address: strings.TrimSpace(address), Interval: f.interval})
	}
	if f.file != "" {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return fmt.Errorf("reading --pull-file: %w", err)
		}
		hosts, err := pull.ParseHosts(string(text), f.interval)
		if err != nil {
			return usagef("--pull-file %q: %v", f.file, err)
		}
		f.hosts = append(f.hosts, hosts...)
	}
	if err := pull.CheckHosts(f.hosts); err != nil {
		return usagef("--pull: %v", err)
	}
	return nil
}

// tenanted are the hosts with the tenants under which their frames go.
func (f *pullFlags) tenanted(r *receiver) ([]pull.Host, error) {
	hosts, names := slices.Clone(f.hosts), r.access.Auth.Tenants()
	for i := range hosts {
		h := &hosts[i]
		switch {
		case !r.flags.named() && len(names) == 0:
			if h.Tenant != "" {
				return nil, usagef("--pull-file: %s is of tenant %q, and this server has no tenants", h.Address, h.Tenant)
			}
		case h.Tenant == "" && (r.flags.header == headerRequired || len(names) > 0):
			return nil, usagef("--pull-file: %s is of no tenant: tenant=NAME is needed", h.Address)
		case h.Tenant == "":
			h.Tenant = ingest.DefaultTenant
		case len(names) > 0 && !slices.Contains(names, h.Tenant):
			return nil, usagef("--pull-file: %s is of tenant %q, which is not known", h.Address, h.Tenant)
		}
	}
	return hosts, nil
}

// openPull makes what reads hosts. With a NATS cluster it is one of a group.
func (r *receiver) openPull(ctx context.Context, f *pullFlags, frames framelog.Log) error {
	if len(f.hosts) == 0 {
		return nil
	}
	keys, err := agent.ReadRegionKeys(f.keyFile)
	if err != nil {
		return fmt.Errorf("reading --pull-key-file: %w", err)
	}
	hosts, err := f.tenanted(r)
	if err != nil {
		return err
	}
	o := pull.Options{Key: keys[0], DialOptions: f.dial, Credit: int(f.credit), Take: r.ingest.TakeFrame,
		Newest: frames.Newest, Settled: r.queues[1].AwaitRecovered, Logger: r.log}
	if r.flags.nats.URL != "" {
		opening, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		g, err := queue.OpenGroup(opening, r.conn, f.group, r.flags.replicas)
		if err != nil {
			return fmt.Errorf("--pull-group: %w", err)
		}
		var name [8]byte
		if _, err := rand.Read(name[:]); err != nil {
			return err
		}
		o.Group, o.Member = pullGroup{g}, hex.EncodeToString(name[:])
	}
	r.pull, err = pull.New(hosts, o)
	return err
}

// pullGroup is a queue.Group as package pull has it.
type pullGroup struct{ *queue.Group }

func (g pullGroup) Renew(ctx context.Context, member string) (pull.Lease, error) {
	term, members, err := g.Group.Renew(ctx, member)
	return pull.Lease{Term: term, Members: members}, err
}
