package route

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// world is a network of fake flow tables, the oracle of these tests.
type world struct {
	top    *network.Topology
	tables map[openflow.DatapathID]*fake.FlowTable
}

func newWorld(top *network.Topology) *world {
	w := &world{top: top, tables: map[openflow.DatapathID]*fake.FlowTable{}}
	for _, s := range top.Switches {
		w.tables[s] = fake.NewFlowTable(nil)
	}
	return w
}

func (w *world) write(r network.Rule) {
	m := openflow.NewFlowMod(openflow.FlowAdd, 0, r.Priority(), r.Match, openflow.ApplyActions(r.Actions...))
	if _, err := w.tables[r.Switch].Flow(m); err != nil {
		panic(err)
	}
}

func (w *world) remove(r network.Rule) {
	m := openflow.NewFlowMod(openflow.FlowDeleteStrict, 0, r.Priority(), r.Match)
	if _, err := w.tables[r.Switch].Flow(m); err != nil {
		panic(err)
	}
}

// arrival is a copy that has left the network.
type arrival struct {
	at       network.PortRef
	src, dst openflow.MAC
}

// send follows a packet through the tables until all copies have left or were dropped. It returns
// an error if a copy comes back to where it was.
func (w *world) send(at network.PortRef, p fake.Packet) ([]arrival, error) {
	var out []arrival
	err := w.follow(at, p, map[string]bool{}, &out)
	return out, err
}

func (w *world) follow(at network.PortRef, p fake.Packet, been map[string]bool, out *[]arrival) error {
	here := fmt.Sprintf("%v %v", at, p)
	if been[here] {
		return fmt.Errorf("comes round to %v again", at)
	}
	been[here] = true
	defer delete(been, here)
	for _, o := range w.tables[at.Switch].Send(at.Port, p).Outputs {
		port := o.Port
		if port == openflow.PortInPort {
			port = at.Port
		}
		from := network.PortRef{Switch: at.Switch, Port: port}
		if l, ok := w.top.LinkFrom(from); ok {
			if err := w.follow(l.To, o.Packet.With(openflow.InPort(l.To.Port)), been, out); err != nil {
				return err
			}
			continue
		}
		src, _ := o.Packet.Get(openflow.FieldEthSrc)
		dst, _ := o.Packet.Get(openflow.FieldEthDst)
		*out = append(*out, arrival{from, openflow.MAC(src.Value[:6]), openflow.MAC(dst.Value[:6])})
	}
	return nil
}

// The hosts of these tests.
var (
	device   = netip.MustParseAddr("10.0.0.7")
	other    = netip.MustParseAddr("10.0.0.8")
	outside  = netip.MustParseAddr("192.0.2.1")
	home     = openflow.MAC{2, 0, 0, 0, 7, 0}
	gateway  = openflow.MAC{2, 0, 0, 0, 0, 1}
	homeToo  = openflow.MAC{2, 0, 0, 0, 8, 0}
	stranger = openflow.MAC{2, 0, 0, 0, 9, 9}
)

func ip(src, dst openflow.MAC, from, to netip.Addr) fake.Packet {
	return fake.NewPacket(openflow.EthSrc(src), openflow.EthDst(dst), openflow.EthType(0x0800),
		openflow.IPSrc(from), openflow.IPDst(to), openflow.IPProto(17))
}

// down returns a packet from outside to the device.
func down() fake.Packet { return ip(gateway, home, outside, device) }

// up returns a packet from the device, as seen at a place.
func up(p Place) fake.Packet {
	src := p.MAC
	if src.IsZero() {
		src = home
	}
	return ip(src, gateway, device, outside)
}

// count returns how often a packet has arrived at a place correctly.
func (p Place) count(as []arrival) (n int) {
	want := p.MAC
	if want.IsZero() {
		want = home
	}
	for _, a := range as {
		if a.at == p.At && a.dst == want {
			n++
		}
	}
	return n
}

// key identifies a rule in the network.
type key struct {
	sw openflow.DatapathID
	rule.Key
}

func rules(p *Plan) map[key]network.Rule {
	out := map[key]network.Rule{}
	for _, r := range p.Program.Rules {
		out[key{r.Switch, r.Key()}] = r
	}
	return out
}

// load returns a world whose switches have the rules of plans.
func load(top *network.Topology, plans ...*Plan) *world {
	w := newWorld(top)
	for _, p := range plans {
		for _, r := range p.Program.Rules {
			w.write(r)
		}
	}
	return w
}
