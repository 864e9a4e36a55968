package tables

import (
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// pool is where devices have their addresses.
var pool = registry.Pool{
	Name: "devices", Prefix: netip.MustParsePrefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.9.0.1"),
	First: netip.MustParseAddr("10.9.0.2"), Last: netip.MustParseAddr("10.9.0.200"),
}

// mobile is a device that is led by its own rules.
type mobile struct {
	mac   openflow.MAC // its address at its port; zero if nothing is rewritten
	roots []network.PortRef
	up    []network.Hop
	down  map[openflow.DatapathID]uint32 // the port towards it, of each switch that leads to it
}

// drawDevice draws where the device's packets come in and leave, and has the switches lead
// them.
func (w *world) drawDevice(t *rapid.T) {
	d := &mobile{mac: rapid.SampledFrom([]openflow.MAC{{}, w.parties[phone].mac, {2, 0, 0, 0, 9, 9}}).Draw(t, "MAC address at the port")}
	w.device = d
	here := &w.parties[phone]
	roots := []network.PortRef{w.parties[router].at}
	if rapid.Bool().Draw(t, "two roots") {
		roots = append(roots, w.parties[other].at)
	}
	d.roots = roots
	want := route.Want{IP: here.ip, Home: here.mac, Places: []route.Place{{At: here.at, MAC: d.mac}}}
	var known []handover.Border
	for _, at := range roots {
		want.Borders = append(want.Borders, route.Border{At: at})
		known = append(known, handover.Border{Name: at.String(), At: at})
	}
	plan, err := route.NewPlan(w.top, want)
	if err != nil {
		t.Fatalf("route %+v: %v", want, err)
	}
	d.up, d.down = plan.Up, map[openflow.DatapathID]uint32{}
	for _, at := range append([]network.PortRef{plan.Egress.At}, roots...) {
		p, _ := w.top.FanPath(at, here.at)
		for _, h := range p.Hops {
			if _, met := d.down[h.Switch]; met {
				break // from here on it is another root's way
			}
			d.down[h.Switch] = h.Out
		}
	}
	w.declare(t, "handover", "device", plan.Program.Rules)
	for _, sw := range w.top.Switches {
		punts, guards := handover.EverySwitch(sw, known, []registry.Pool{pool})
		if !w.apply(t, "handover", "punt/"+sw.String(), punts) || !w.apply(t, "handover", "spoof/"+sw.String(), guards) {
			t.Fatalf("the ledger refuses what every switch has")
		}
	}
}

// forwarding is default forwarding, and who has sent whom something.
type forwarding struct {
	flows []*forward.Flow
}

// Lookup is where a host stands, as default forwarding asks for it.
func (w *world) Lookup(mac openflow.MAC, vlan uint16) (network.PortRef, bool) {
	for i := range w.parties {
		if p := &w.parties[i]; p.mac == mac && p.vlan == vlan {
			return p.at, true
		}
	}
	return network.PortRef{}, false
}

// Neighbor is nobody: ARP is not what these tests are about.
func (w *world) Neighbor(netip.Addr, uint16) (hosts.Neighbor, bool) { return hosts.Neighbor{}, false }

// IsVirtual returns false: no service has a virtual address in these tests.
func (w *world) IsVirtual(openflow.MAC) bool { return false }

// drawForwarding has some of the parties exchange packets by default forwarding.
func (w *world) drawForwarding(t *rapid.T) {
	view := &forward.View{Topology: w.top, Hosts: w, Edges: w}
	w.declare(t, "network", "base", view.BaseProgram().Rules)
	for _, d := range w.top.Switches {
		w.declare(t, "network", "ask/"+d.String(), forward.AskProgram(d).Rules)
	}
	w.ordinary = &forwarding{}
	flows, writer := forward.NewTable(), ledger.NewFlowWriter(0)
	for range rapid.IntRange(0, 8).Draw(t, "exchanges") {
		from, to := rapid.IntRange(0, numParties-1).Draw(t, "from"), rapid.IntRange(0, numParties-1).Draw(t, "to")
		h := w.between(from, to)
		d := flows.Decide(view, w.parties[from].at, &h)
		if d.Flow == nil || !d.New {
			continue
		}
		w.ordinary.flows = append(w.ordinary.flows, d.Flow)
		for _, hop := range d.Flow.Path.Hops {
			f := rule.Flow{InPort: hop.In, Src: d.Flow.Src, Dst: d.Flow.Dst, VLAN: d.Flow.VLAN}
			_, m, err := openflow.Decode(writer.AppendAdd(nil, 1, w.layouts[hop.Switch], 1, f, hop.Output()))
			if err != nil {
				t.Fatalf("flow %v: %v", d.Flow.Key, err)
			}
			if e := w.change(hop.Switch, m); e != nil {
				t.Fatalf("flow %v: %v", d.Flow.Key, e)
			}
		}
	}
}

// between is a TCP segment from one party to another.
func (w *world) between(from, to int) packet.Headers {
	a, b := &w.parties[from], &w.parties[to]
	h := packet.Headers{
		Layers: packet.Ethernet | packet.IPv4 | packet.TCP, EthType: packet.TypeIPv4, EthSrc: a.mac, EthDst: b.mac, Src: a.ip, Dst: b.ip,
		Proto: packet.ProtoTCP, SrcPort: clientPort, DstPort: serverPort, TCPFlags: packet.ACK,
	}
	tag(&h, a.vlan)
	return h
}

// tag gives a packet a VLAN; zero takes its tag away.
func tag(h *packet.Headers, vlan uint16) {
	h.Layers &^= packet.VLAN
	h.VLANTags, h.VLANID = 0, vlan
	if vlan > 0 {
		h.Layers |= packet.VLAN
		h.VLANTags = 1
	}
}

// onTree says whether what is flooded goes by a port of a link.
func (w *world) onTree(at network.PortRef) bool {
	return slices.Contains(w.top.TreePorts(at.Switch), at.Port)
}
