package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"outsight/internal/hostclock"
	"outsight/internal/probe"
	"outsight/internal/stamp"
)

type reflectorOptions struct {
	listen, keyFile string
	allow           []string
	rate            float64
	length          time.Duration
	// device is what this host's clock is compared with.
	device hostclock.Device
}

func newReflector() *cobra.Command {
	var o reflectorOptions
	c := &cobra.Command{
		Use:   "reflector",
		Short: "Answer STAMP and TWAMP-Light packets, for hosts without an agent",
		Long: `Answer the packets by which "outsight probe" and other senders of STAMP (RFC 8762, RFC 8972) and
TWAMP-Light measure the way to this host, and print what was counted at the end, as JSON. Answers only addresses that
--allow names, with --key-file only those who know the key, none more often than --rate, and never with more bytes than
it was asked with. Needs no privilege but that of its port.`,
		Example: `  sudo outsight reflector --allow 192.0.2.0/24
  outsight reflector --listen 192.0.2.7:8620 --allow 192.0.2.1 --key-file key --for 1h`,
		RunE: func(c *cobra.Command, _ []string) error {
			options, at, err := o.options()
			if err != nil {
				return err
			}
			clock, err := hostclock.Open(o.device)
			if err != nil {
				return err
			}
			defer clock.Close()
			stop := clock.Follow()
			options.Clock = probe.HostClock(clock)
			stats, err := o.run(c.Context(), at, options, func(at net.Addr) {
				say(c.ErrOrStderr(), "Answering at %s. This host's clock is %s.\n", at, boundText(probe.BoundHere(options.Clock())))
			})
			stats.Clock = probe.BoundHere(options.Clock())
			if unread := stop(); unread != nil {
				fmt.Fprintf(c.ErrOrStderr(), "outsight: for a while the kernel's estimate of the clock counted: %v\n", unread)
			}
			if err != nil {
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(stats)
		},
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", ":862", "UDP address to answer at")
	f.StringSliceVar(&o.allow, "allow", nil,
		"addresses and prefixes that are answered, as in 192.0.2.0/24; several separated by commas")
	f.StringVar(&o.keyFile, "key-file", "", "file with a key of 16 bytes or more: only packets with its HMAC are answered")
	f.Float64Var(&o.rate, "rate", 1000, "packets per second that each sender is answered at most")
	f.Var(&o.device, "clock-device", hostclock.Help)
	f.DurationVar(&o.length, "for", 0, "how long to answer; 0 is until Ctrl-C")
	return c
}

func (o *reflectorOptions) options() (options stamp.ReflectorOptions, at *net.UDPAddr, err error) {
	var allowed []netip.Prefix
	for _, text := range o.allow {
		prefix, err := netip.ParsePrefix(text)
		if address, notAddress := netip.ParseAddr(text); err != nil && notAddress == nil {
			prefix, err = address.Unmap().Prefix(address.Unmap().BitLen())
		}
		if err != nil {
			return options, nil, usagef("--allow has %q, want an address or a prefix, as in 192.0.2.0/24", text)
		}
		allowed = append(allowed, prefix)
	}
	switch {
	case len(allowed) == 0:
		return options, nil, usagef("--allow is empty: name who is to be answered, as in --allow 192.0.2.0/24")
	case !(o.rate >= 1 && o.rate <= 1e6):
		return options, nil, usagef("--rate is %v, want 1 to 1000000", o.rate)
	case o.length < 0:
		return options, nil, usagef("--for is %v, want 0 or more", o.length)
	}
	if at, err = net.ResolveUDPAddr("udp", o.listen); err != nil {
		return options, nil, usagef("--listen is %q, want HOST:PORT, as in 192.0.2.7:862", o.listen)
	}
	key, err := readKey(o.keyFile)
	if err != nil {
		return options, nil, err
	}
	options = stamp.ReflectorOptions{MaxPerSecond: o.rate,
		Peer: func(a netip.Addr, _ uint16) (stamp.Key, bool) {
			for _, p := range allowed {
				if p.Contains(a.WithZone("")) {
					return key, true
				}
			}
			return nil, false
		}}
	return options, at, nil
}

// reflectorReport is what is printed at the end.
type reflectorReport struct {
	Seconds float64 `json:"seconds"`
	// Clock is this host's, at the end.
	Clock probe.ClockBound `json:"clock"`
	stamp.ReflectorStats
}

// run answers until the time is up or ctx ends.
func (o *reflectorOptions) run(ctx context.Context, at *net.UDPAddr, options stamp.ReflectorOptions,
	ready func(net.Addr)) (r reflectorReport, err error) {
	conn, err := net.ListenUDP("udp", at)
	if err != nil {
		return r, fmt.Errorf("%w: choose another address with --listen", err)
	}
	reflector, err := stamp.NewReflector(conn, options)
	if err != nil {
		conn.Close()
		return r, err
	}
	ready(conn.LocalAddr())
	if o.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.length)
		defer cancel()
	}
	begun := time.Now()
	if err := reflector.Run(ctx); err != nil {
		return r, err
	}
	return reflectorReport{Seconds: time.Since(begun).Seconds(), ReflectorStats: reflector.Stats()}, nil
}
