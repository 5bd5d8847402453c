package graph

import (
	"net/netip"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// Names know what Kubernetes called ends of edges and containers, at a time. All methods may be called at the same
// time.
type Names interface {
	// End is what the end of an edge was called that had an address. A server's end also has the address and port that was
	// dialled; service is the zero AddrPort for a client's. ok is false where nothing is known.
	End(at time.Time, address netip.Addr, service netip.AddrPort, transport model.Transport) (end model.NamedEnd, ok bool)
	// Container is what a container was called, by its runtime's id.
	Container(id string) (model.PodIdentity, bool)
}

// namedEnd is what a name is asked for.
type namedEnd struct {
	address, service string
	transport        model.Transport
	at               int64 // in seconds since 1970
}

// name asks for the names of ends that are in no container that is watched.
func (m *frameMap) name() {
	if m.o.Names == nil {
		return
	}
	known := map[namedEnd]*kube{}
	for i := range m.rows {
		r := &m.rows[i]
		if r.side == model.RoleUnknown {
			continue
		}
		p := &m.parts[r.part]
		for _, e := range []*mapEnd{&r.client, &r.server} {
			if e.container >= 0 || e.address < 0 {
				continue
			}
			of := namedEnd{address: m.addresses[e.address].text, transport: r.transport, at: p.timeOf(int(r.row)).Unix()}
			if e == &r.server {
				of.service = p.After.Text(frame.Edges, frame.EdgeService, int(r.row))
			}
			name, asked := known[of]
			if !asked {
				name = m.askName(of)
				known[of] = name
			}
			e.kube = name
		}
	}
}

// timeOf is when an edge was last there.
func (p *part) timeOf(edge int) time.Time {
	t := &p.After.Tables[frame.Edges]
	if ended := t.Attribute(frame.Ended, edge); ended != 0 && t.Attribute(frame.State, edge) == frame.Gone {
		return time.UnixMilli(int64(ended))
	}
	return p.After.Time
}

func (m *frameMap) askName(of namedEnd) *kube {
	address, err := netip.ParseAddr(of.address)
	if err != nil {
		return nil
	}
	service, _ := netip.ParseAddrPort(of.service)
	end, ok := m.o.Names.End(time.Unix(of.at, 0), address.Unmap().WithZone(""), service, of.transport)
	if !ok {
		return nil
	}
	return &kube{end.Namespace, end.Pod, end.Container, end.Workload, end.WorkloadKind, end.Node, end.ServiceNamespace,
		end.Service}
}

// nameContainer gives a container the name of its pod where its agent did not know it.
func (m *frameMap) nameContainer(n *Node) {
	if m.o.Names == nil || n.PodName != "" || n.ID == "" || n.ID == model.HostContainerID {
		return
	}
	if is, ok := m.o.Names.Container(n.ID); ok {
		n.PodNamespace, n.PodName, n.Workload, n.WorkloadKind = is.Namespace, is.Pod, is.Workload, is.WorkloadKind
		if is.Container != "" {
			n.Name = is.Container
		}
	}
}
