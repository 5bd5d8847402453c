package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"

	"outsight/internal/kernel"
	responder "outsight/internal/kernel/region"
	"outsight/internal/model"
	"outsight/internal/region"
	"outsight/internal/region/readwire"
)

// servePackets lets the kernel answer packets at the interface that --region-listen names. Where no hook is asked for and
// none works, readers have TCP alone.
func (r *regions) servePackets(o *RegionOptions, keys []region.Key, allow []netip.Prefix) error {
	device := o.device()
	if device == "" || o.Hook == hookOff {
		return nil
	}
	p, err := openPackets(device, o, keys, allow, r.all, r.logger)
	if err != nil && o.Hook != "" && o.Hook != string(responder.HookAuto) {
		return err
	}
	if err != nil {
		r.logger.Warn("the kernel does not answer readers by itself: they have TCP", "error", err)
		p = &packetServer{failure: err}
	}
	r.servers = append(r.servers, p)
	return nil
}

// packetServer is the kernel's responder as a transport.
type packetServer struct {
	responder *responder.Responder
	failure   error
	logger    *slog.Logger
}

func openPackets(device string, o *RegionOptions, keys []region.Key, allow []netip.Prefix, all []kernel.Region,
	logger *slog.Logger) (*packetServer, error) {
	_, text, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("--region-listen: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("--region-listen: the port %q is no number", text)
	}
	options := responder.Options{Interface: device, Port: uint16(port), Allow: allow,
		Hook: responder.Hook(cmp.Or(o.Hook, string(responder.HookAuto)))}
	if len(allow) == 0 {
		options.Allow = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	for _, k := range keys {
		key, err := readwire.KeyOf(k)
		if err != nil {
			return nil, fmt.Errorf("--region-key-file: %w", err)
		}
		options.Keys = append(options.Keys, key)
	}
	r, err := responder.Open(options)
	if err != nil {
		return nil, err
	}
	for id, one := range all {
		if err := r.Add(uint32(id), one.Map); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	for _, refusal := range r.Refusals() {
		logger.Info("answering readers' packets elsewhere", "hook", string(r.Hook()), "reason", refusal)
	}
	return &packetServer{responder: r, logger: logger}, nil
}

// Run implements regionServer: nothing runs.
func (p *packetServer) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close implements regionServer.
func (p *packetServer) Close() error {
	if p.responder == nil {
		return nil
	}
	return p.responder.Close()
}

// Features implements Reporter.
func (p *packetServer) Features() []model.Feature {
	f := model.Feature{Name: "region/packets", Purpose: "counters for readers on other hosts while no process runs",
		State: model.FeatureWorks}
	if p.failure != nil {
		f.State, f.Reason = model.FeatureAbsent, p.failure.Error()
		return []model.Feature{f}
	}
	f.Name = "region/" + string(p.responder.Hook())
	return []model.Feature{f}
}

// Drops implements Reporter.
func (p *packetServer) Drops() (all []model.Drop) {
	if p.responder == nil {
		return nil
	}
	c, err := p.responder.Counters()
	if err != nil {
		p.logger.Error("what readers' packets were refused is not known", "error", err)
		return nil
	}
	for _, d := range []model.Drop{{Name: "address", Count: c.NotAllowed}, {Name: "truncated", Count: c.Truncated},
		{Name: "malformed", Count: c.Malformed}, {Name: "unknown_key", Count: c.UnknownKey},
		{Name: "wrong_mac", Count: c.WrongMAC}, {Name: "rate", Count: c.OverRate}, {Name: "misaligned", Count: c.Misaligned},
		{Name: "oversized", Count: c.Oversized}, {Name: "faults", Count: c.Faults},
		{Name: "region", Count: c.UnknownRegion}, {Name: "bounds", Count: c.OutOfBounds}} {
		all = append(all, model.Drop{Name: "region/packets/" + d.Name, Count: d.Count})
	}
	return all
}
