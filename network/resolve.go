package network

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// probeMAC is the locally administered address the controller asks from. It
// belongs to no host; what is sent to it ends at the controller.
var probeMAC = openflow.MAC{0x02, 0x51, 0x1c, 0, 0, 0x01}

// probeAddr6 is the link-local address that goes with it.
var probeAddr6 = netip.MustParseAddr("fe80::51:1cff:fe00:1")

// Bounds of host probing.
const (
	resolveTimeout  = 2 * time.Second
	resolveInterval = 250 * time.Millisecond
	maxResolving    = 1024
)

// resolving are the addresses somebody waits for.
type resolving struct {
	mu      sync.Mutex
	waiting map[netip.Addr]*resolution
}

// resolution is one search for a host, shared by all who look for it.
type resolution struct {
	found   chan struct{} // closed when the host is known
	waiters int
}

// ResolveHost finds the host that has an address: from the host table or, if it
// is not there, by asking with ARP or neighbour discovery from every edge port.
// It returns ErrUnknownHost when nobody answers within two seconds or, if that
// is sooner, before ctx ends.
func (n *Network) ResolveHost(ctx context.Context, a netip.Addr) (Host, error) {
	a = a.Unmap()
	if h, ok := n.HostByIP(a); ok {
		return h, nil
	}
	r, err := n.resolving.join(a)
	if err != nil {
		return Host{}, err
	}
	defer n.resolving.leave(a, r)
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	again := time.NewTicker(resolveInterval)
	defer again.Stop()
	for {
		// The host may have been learned before anybody waited for it: its answer
		// is then no news, and wakes nobody.
		if h, ok := n.HostByIP(a); ok {
			return h, nil
		}
		n.askFor(a)
		select {
		case <-r.found:
			if h, ok := n.HostByIP(a); ok {
				return h, nil
			}
		case <-again.C:
			continue
		case <-ctx.Done():
		}
		return Host{}, fmt.Errorf("%w: nobody answers for %v", ErrUnknownHost, a)
	}
}

func (r *resolving) join(a netip.Addr) (*resolution, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.waiting[a]
	if w == nil {
		if len(r.waiting) >= maxResolving {
			return nil, fmt.Errorf("%w: %d addresses are being looked for", ErrBusy, maxResolving)
		}
		if r.waiting == nil {
			r.waiting = map[netip.Addr]*resolution{}
		}
		w = &resolution{found: make(chan struct{})}
		r.waiting[a] = w
	}
	w.waiters++
	return w, nil
}

func (r *resolving) leave(a netip.Addr, w *resolution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.waiters--; w.waiters == 0 && r.waiting[a] == w {
		delete(r.waiting, a)
	}
}

// learned wakes those who wait for one of the addresses.
func (r *resolving) learned(ips []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range ips {
		if w := r.waiting[a]; w != nil {
			delete(r.waiting, a)
			close(w.found)
		}
	}
}

// askFor sends a question for an address out of every edge port: untagged, and
// in each VLAN in which hosts have been seen behind the port.
func (n *Network) askFor(a netip.Addr) {
	for s, actions := range n.edgeOutputs() {
		n.ask(s, a, 0, actions)
	}
	for vlan, towards := range n.taggedOutputs() {
		for s, actions := range towards {
			n.ask(s, a, vlan, actions)
		}
	}
}

// outputs are actions that send out of some ports of each switch.
type outputs map[*Switch][]openflow.Action

// edgeOutputs send out of every edge port.
func (n *Network) edgeOutputs() outputs {
	out := outputs{}
	for _, s := range n.Switches() {
		for _, p := range n.links.EdgePorts(s.dpid) {
			out[s] = append(out[s], openflow.Output(p))
		}
	}
	return out
}

// taggedOutputs send, for each VLAN, out of the ports behind which hosts of it are.
func (n *Network) taggedOutputs() map[uint16]outputs {
	type place struct {
		at   PortRef
		vlan uint16
	}
	all, seen := map[uint16]outputs{}, map[place]bool{}
	for _, h := range n.Hosts() {
		p := place{h.At, h.VLAN}
		s, ok := n.Switch(h.At.Switch)
		if h.VLAN == 0 || seen[p] || !ok {
			continue
		}
		seen[p] = true
		if all[h.VLAN] == nil {
			all[h.VLAN] = outputs{}
		}
		all[h.VLAN][s] = append(all[h.VLAN][s], openflow.Output(h.At.Port))
	}
	return all
}

// ask sends one question.
func (n *Network) ask(s *Switch, a netip.Addr, vlan uint16, actions []openflow.Action) {
	var frame []byte
	if a.Is4() {
		frame = packet.AppendARPRequest(nil, probeMAC, netip.IPv4Unspecified(), a, vlan)
	} else {
		frame = packet.AppendNeighborSolicitation(nil, probeMAC, probeAddr6, a, vlan)
	}
	if err := s.PacketOut(openflow.PortController, actions, frame); err != nil {
		s.limiter.Warn(n.log, "asking for a host", "switch", s.dpid, "address", a, "error", err)
	}
}
