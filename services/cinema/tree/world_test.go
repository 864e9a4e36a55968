package tree

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// producer is the address from which channels enter.
var producer = openflow.MAC{2, 0, 0, 0, 0, 1}

var media = netip.MustParseAddrPort("198.19.255.1:5004")

// gateway is an egress gateway.
type gateway struct {
	at   network.PortRef
	mac  openflow.MAC
	addr netip.Addr
}

// viewerPort is a viewer's port of a gateway, by its number.
type viewerPort struct {
	gateway int
	port    uint16
}

// channel is a channel with its viewers.
type channel struct {
	name   string
	number uint16
	rate   uint64
	root   network.PortRef
	seats  map[viewerPort]bool

	groups  map[openflow.DatapathID]*Groups
	applied Tree
	refused map[openflow.DatapathID]error
}

func (c *channel) from() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(c.number)}), 20000+c.number)
}

// world is a network of switches with tables, and channels across them. Links can be down.
type world struct {
	switches []openflow.DatapathID
	links    []network.Link // all links that there ever are, each direction
	down     map[network.PortRef]bool
	capacity map[network.PortRef]uint64
	queues   map[network.PortRef]uint32 // of classes, by port
	linkMACs bool
	edges    []network.PortRef
	ports    map[openflow.DatapathID]uint32 // highest port of each switch
	tables   map[openflow.DatapathID]*fake.FlowTable
	ledger   *ledger.Ledger
	owner    *ledger.Owner
	gateways []gateway
	channels []*channel
	book     *Reservations
}

// share is the share of each link that channels may take.
const share = 0.5

// newWorld returns switches without links.
func newWorld(n int) *world {
	w := &world{
		down: map[network.PortRef]bool{}, capacity: map[network.PortRef]uint64{}, tables: map[openflow.DatapathID]*fake.FlowTable{}, ledger: ledger.New(1),
		ports: map[openflow.DatapathID]uint32{},
	}
	w.owner, _ = w.ledger.AddOwner("cinema", false)
	w.book = NewReservations(share, func(at network.PortRef) uint64 { return w.capacity[at] })
	for i := 1; i <= n; i++ {
		d := openflow.DatapathID(i)
		w.switches, w.tables[d] = append(w.switches, d), fake.NewFlowTable(nil)
		w.ledger.Reading(d, rule.OneTable)()
	}
	return w
}

// port returns an unused port of a switch.
func (w *world) port(sw int) network.PortRef {
	d := openflow.DatapathID(sw)
	w.ports[d]++
	return network.PortRef{Switch: d, Port: w.ports[d]}
}

// join connects two switches by a link with the given capacities there and back, in bit/s.
func (w *world) join(a, b int, there, back uint64) {
	x, y := w.port(a), w.port(b)
	w.links = append(w.links, network.Link{From: x, To: y}, network.Link{From: y, To: x})
	w.capacity[x], w.capacity[y] = there, back
}

func drawWorld(t *rapid.T) *world {
	n := rapid.IntRange(1, 7).Draw(t, "switches")
	w := newWorld(n)
	port := w.port
	rates := rapid.SampledFrom([]uint64{0, 4, 10, 20, 40})
	join := func(a, b int) { w.join(a, b, rates.Draw(t, "capacity")*1e6, rates.Draw(t, "capacity back")*1e6) }
	for i := 1; i <= n; i++ {
		if i > 1 {
			join(rapid.IntRange(1, i-1).Draw(t, "joined to"), i)
		}
	}
	for range rapid.IntRange(0, 6).Draw(t, "more links") {
		if a, b := rapid.IntRange(1, n).Draw(t, "from"), rapid.IntRange(1, n).Draw(t, "to"); a != b {
			join(a, b)
		}
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "gateways") {
		w.gateways = append(w.gateways, gateway{
			at: port(rapid.IntRange(1, n).Draw(t, "gateway at")), mac: openflow.MAC{2, 0, 0, 0, 1, byte(i)}, addr: netip.AddrFrom4([4]byte{10, 0, 2, byte(i + 1)}),
		})
	}
	for i := range 3 {
		w.edges = append(w.edges, port(rapid.IntRange(1, n).Draw(t, "ingress gateway at")))
		w.channels = append(w.channels, &channel{
			name: fmt.Sprintf("c%d", i), number: uint16(i + 1), rate: rapid.SampledFrom([]uint64{1, 2, 5}).Draw(t, "rate") * 1e6, root: w.edges[i],
			seats: map[viewerPort]bool{}, groups: map[openflow.DatapathID]*Groups{},
		})
	}
	w.edges = append(w.edges, w.gateways[0].at) // both kinds of gateways behind one port
	for _, d := range w.switches {
		w.plan(t, "guard/"+d.String(), Guard(d, media.Addr()), nil)
		w.plan(t, "guard-by-ecn/"+d.String(), GuardByECN(d, media.Addr()), nil)
	}
	w.linkMACs = rapid.Bool().Draw(t, "links have addresses of their own")
	w.queues = map[network.PortRef]uint32{}
	for _, d := range w.switches {
		for p := uint32(1); p <= w.ports[d]; p++ {
			w.queues[network.PortRef{Switch: d, Port: p}] = rapid.Uint32Range(0, 2).Draw(t, "queue")
		}
	}
	return w
}

func (w *world) topology() *network.Topology {
	var up []network.Link
	for _, l := range w.links {
		if !w.down[l.From] {
			up = append(up, l)
		}
	}
	return topology.New(1, w.switches, up)
}

// plan installs a program in the tables. The switches follow in a random order; looked is
// called after each message.
func (w *world) plan(t *rapid.T, key string, p network.Program, looked func()) {
	c, err := w.ledger.Plan(w.owner, key, p)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	w.write(t, c.Writes, func(a, b ledger.Op) int { return b.Depth() - a.Depth() }, looked)
	w.write(t, c.Deletes, func(a, b ledger.Op) int { return a.Depth() - b.Depth() }, looked)
	c.Confirm()
}

// write makes switches carry out messages, each its own in order.
func (w *world) write(t *rapid.T, ops []ledger.Op, order func(a, b ledger.Op) int, looked func()) {
	queues := map[openflow.DatapathID][]ledger.Op{}
	for _, op := range ops {
		queues[op.Switch] = append(queues[op.Switch], op)
	}
	for _, q := range queues {
		slices.SortStableFunc(q, order)
	}
	for len(queues) > 0 {
		d := rapid.SampledFrom(slices.Sorted(maps.Keys(queues))).Draw(t, "next switch")
		w.change(t, queues[d][0])
		if queues[d] = queues[d][1:]; len(queues[d]) == 0 {
			delete(queues, d)
		}
		if looked != nil {
			looked()
		}
	}
}

func (w *world) change(t *rapid.T, op ledger.Op) {
	var e *openflow.Error
	switch m := op.Message.(type) {
	case *openflow.FlowMod:
		_, e = w.tables[op.Switch].Flow(m)
	case *openflow.GroupMod:
		_, e = w.tables[op.Switch].Group(m)
	case *openflow.MeterMod:
		e = w.tables[op.Switch].Meter(m)
	}
	if e != nil {
		t.Fatalf("switch %v refuses %v: %v", op.Switch, op.Message, e)
	}
}

// follow adapts a channel to its viewers, by a shorter path than before if shorter is true.
func (w *world) follow(t *rapid.T, c *channel, shorter bool) {
	copies := map[openflow.DatapathID][]Copy{}
	for s := range c.seats {
		g := &w.gateways[s.gateway]
		in := uint32(0)
		if g.at.Switch == c.root.Switch {
			in = c.root.Port
		}
		c := CopyAt(g.at, in, g.mac, netip.AddrPortFrom(g.addr, s.port))
		c.Queue = w.queues[g.at]
		copies[g.at.Switch] = append(copies[g.at.Switch], c)
	}
	want := Want{Root: c.root, Rate: c.rate, Switches: slices.Sorted(maps.Keys(copies))}
	next, refused := reserveGrown(w.book, c.name, w.topology(), want)
	for d, why := range refused {
		w.checkRefusal(t, c, d, why)
		delete(copies, d)
	}
	if shorter && len(refused) == 0 {
		next = w.shorter(t, c, next, want)
	}
	w.lead(t, c, next, copies)
	c.refused = refused
}

// shorter returns a tree with fewer links for a channel, if there is one.
func (w *world) shorter(t *rapid.T, c *channel, than Tree, want Want) Tree {
	s, is := reserveShorter(w.book, c.name, w.topology(), want)
	if !is {
		return than
	}
	if len(s.Edges) >= len(than.Edges) || slices.ContainsFunc(want.Switches, func(d openflow.DatapathID) bool { _, gets := s.InPorts()[d]; return !gets }) {
		t.Fatalf("%s: %v to %v is no shorter way than %v", c.name, s, want.Switches, than)
	}
	return s
}

// lead moves a channel to another tree in the way of the service.
func (w *world) lead(t *rapid.T, c *channel, next Tree, copies map[openflow.DatapathID][]Copy) {
	maps.DeleteFunc(c.groups, func(d openflow.DatapathID, _ *Groups) bool { return len(copies[d]) == 0 })
	for d, list := range copies {
		if c.groups[d] == nil {
			c.groups[d] = &Groups{}
		}
		if over := c.groups[d].Set(list); len(over) > 0 {
			t.Fatalf("no room for %v", over)
		}
	}
	p := Plan{Tree: next, From: c.from(), To: media, Rate: c.rate, Meter: MeterNumber(c.number), Copies: c.groups, Queues: w.queues, LinkMACs: w.linkMACs, Group: func(n int) uint32 {
		return rule.GroupID(rule.OwnerHash("cinema"), GroupNumber(c.number, n))
	}}
	calm := func() { // send fails for a loop, and for a packet that is sent back
		w.send(t, c, c.root)
		if c.applied.Root != next.Root && c.applied.Root != (network.PortRef{}) {
			w.send(t, c, c.applied.Root)
		}
	}
	if HasLoop(c.applied, next) || Bounces(c.applied, next, c.groups) {
		kept := p
		kept.Tree = c.applied.Common(next)
		w.plan(t, c.name, kept.Program(), calm)
	}
	if c.applied.Moves(next) && !HasLoop(c.applied, next) && c.applied.Root == next.Root && w.there(c.applied) {
		p.Draining = c.applied
		w.planLossless(t, c, p.Program(), next.Duplicates(c.applied))
		p.Draining = Tree{}
	}
	if !c.applied.Moves(next) && c.applied.Prunes(next) {
		p.Draining = c.applied
		w.plan(t, c.name, p.Program(), calm)
		w.checkLeft(t, c, next)
		p.Draining = Tree{}
	}
	w.plan(t, c.name, p.Program(), calm)
	c.applied = next
}

// checkLeft fails the test if a switch that the channel has left relies on a guard to drop
// packets in flight.
func (w *world) checkLeft(t *rapid.T, c *channel, next Tree) {
	still := next.InPorts()
	for d, in := range c.applied.InPorts() {
		if _, is := still[d]; is {
			continue
		}
		r := w.tables[d].Send(in, c.sent(network.PortRef{Switch: d, Port: in}).p)
		if !slices.ContainsFunc(r.Entries, func(e fake.Entry) bool {
			_, offset, _ := rule.OfPriority(e.Priority)
			return offset == rule.RewriteChannel
		}) {
			t.Fatalf("%s, left: at switch %v a guard drops it: %v", c.name, d, r.Entries)
		}
	}
}

// arrival is a packet that leaves the network.
type arrival struct {
	at  network.PortRef
	mac openflow.MAC
	to  netip.AddrPort
}

// step is a packet that arrives at a switch by a port.
type step struct {
	at network.PortRef
	p  fake.Packet
}

// sent returns a datagram of a channel that enters by a port.
func (c *channel) sent(in network.PortRef) step {
	return step{in, fake.NewPacket(openflow.EthSrc(producer), openflow.EthDst(openflow.MAC{2, 0, 0xc6, 0x12, 0, 1}), openflow.EthType(ethTypeIPv4), openflow.IPProto(protoUDP),
		openflow.IPSrc(c.from().Addr()), openflow.IPDst(media.Addr()), openflow.UDPSrc(c.from().Port()), openflow.UDPDst(media.Port()))}
}

// send sends a datagram of a channel in by a port, and returns how often it arrives where, and
// how often it crosses each link.
func (w *world) send(t *rapid.T, c *channel, in network.PortRef) (arrived map[arrival]int, crossed map[network.PortRef]int) {
	arrived, crossed = map[arrival]int{}, map[network.PortRef]int{}
	todo := []step{c.sent(in)}
	for n := 0; len(todo) > 0; n++ {
		if n > 200 {
			t.Fatalf("%s loops: %v", c.name, crossed)
		}
		s := todo[0]
		todo = append(todo[1:], w.forward(t, c, s, arrived, crossed)...)
	}
	return arrived, crossed
}

// forward processes a packet at a switch, and returns where it goes next.
func (w *world) forward(t *rapid.T, c *channel, s step, arrived map[arrival]int, crossed map[network.PortRef]int) (onward []step) {
	for _, out := range w.tables[s.at.Switch].Send(s.at.Port, s.p).Outputs {
		at := network.PortRef{Switch: s.at.Switch, Port: out.Port}
		if out.Port == openflow.PortInPort {
			at.Port = s.at.Port
		}
		if out.Queue != w.queues[at] {
			t.Fatalf("%s leaves by %v in queue %d, not %d", c.name, at, out.Queue, w.queues[at])
		}
		i := slices.IndexFunc(w.links, func(l network.Link) bool { return l.From == at })
		if i < 0 {
			arrived[arrivalOf(at, out.Packet)]++
			continue
		}
		crossed[at]++
		want := producer
		if w.linkMACs {
			want = LinkMAC(at)
		}
		if src, _ := out.Packet.Get(openflow.FieldEthSrc); src.MAC() != want {
			t.Fatalf("%s crosses %v from %v, not from %v", c.name, at, src.MAC(), want)
		}
		if !w.down[at] {
			onward = append(onward, step{w.links[i].To, out.Packet})
		}
	}
	return onward
}

func arrivalOf(at network.PortRef, p fake.Packet) arrival {
	mac, _ := p.Get(openflow.FieldEthDst)
	ip, _ := p.Get(openflow.FieldIPv4Dst)
	port, _ := p.Get(openflow.FieldUDPDst)
	return arrival{at, mac.MAC(), netip.AddrPortFrom(ip.Addr(), uint16(port.Uint()))}
}
