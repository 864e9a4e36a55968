package tables

import (
	"fmt"
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

// party is who stands at a port.
type party struct {
	name string
	ip   netip.Addr
	mac  openflow.MAC
	vlan uint16 // zero for none
	at   network.PortRef
}

func (p *party) host() network.Host { return network.Host{MAC: p.mac, VLAN: p.vlan, At: p.at} }

// The parties of every world.
const (
	client = iota
	server
	other
	agentX // the client's agent
	agentY // the server's
	router // behind the roots of mobile devices
	phone  // the mobile device; it has another MAC address at its port than elsewhere
	numParties
)

var partyNames = [numParties]string{"client", "server", "other", "agent x", "agent y", "router", "device"}

// connection is one between two parties.
type connection struct {
	from, to         int
	srcPort, dstPort uint16
}

func (c connection) turned() connection { return connection{c.to, c.from, c.dstPort, c.srcPort} }

// world are some switches with their tables, and what has been declared there.
type world struct {
	top     *topology.Topology
	parties [numParties]party
	edges   map[openflow.DatapathID][]uint32
	tables  map[openflow.DatapathID]*fake.FlowTable
	layouts map[openflow.DatapathID]rule.Layout
	ledger  *ledger.Ledger
	met     []connection // of which something has been declared
	mistake func(*openflow.FlowMod)

	channel  *channel
	sos      *carrying
	classes  []class
	critical *criticalTraffic
	subflows *subflowsWorld
	names    []namePath
	device   *mobile
	ordinary *forwarding

	withNames bool
}

// drawWorld draws switches and who stands where. Each of the switches has tables, or one.
func drawWorld(t *rapid.T, mistake func(*openflow.FlowMod)) *world {
	w := &world{
		mistake: mistake,
		edges:   map[openflow.DatapathID][]uint32{}, tables: map[openflow.DatapathID]*fake.FlowTable{},
		layouts: map[openflow.DatapathID]rule.Layout{}, ledger: ledger.New(1),
		met: []connection{{client, server, clientPort, serverPort}, {phone, router, clientPort, serverPort}, {client, phone, clientPort, serverPort}},
	}
	n := rapid.IntRange(2, 4).Draw(t, "switches")
	ports := make([]uint32, n+1)
	port := func(sw int) network.PortRef {
		ports[sw]++
		return network.PortRef{Switch: openflow.DatapathID(sw), Port: ports[sw]}
	}
	var all []openflow.DatapathID
	var links []network.Link
	join := func(a, b int) {
		x, y := port(a), port(b)
		links = append(links, network.Link{From: x, To: y}, network.Link{From: y, To: x})
	}
	for i := 1; i <= n; i++ {
		all = append(all, openflow.DatapathID(i))
		if i > 1 {
			join(rapid.IntRange(1, i-1).Draw(t, "joined to"), i)
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "more links") {
		if a, b := rapid.IntRange(1, n).Draw(t, "from"), rapid.IntRange(1, n).Draw(t, "to"); a != b {
			join(a, b)
		}
	}
	w.top = topology.New(1, all, links)
	edge := func(sw int) network.PortRef {
		at := port(sw)
		w.edges[at.Switch] = append(w.edges[at.Switch], at.Port)
		return at
	}
	for i := range w.parties {
		w.parties[i] = party{
			name: partyNames[i], ip: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), mac: openflow.MAC{2, 0, 0, 0, 0, byte(i + 1)},
			at: edge(rapid.IntRange(1, n).Draw(t, "where "+partyNames[i]+" stands")),
		}
		if i != router && i != phone {
			w.parties[i].vlan = rapid.SampledFrom([]uint16{0, 0, 0, 7, 9}).Draw(t, "VLAN of "+partyNames[i])
		}
	}
	w.parties[phone].ip = netip.AddrFrom4([4]byte{10, 9, 0, 5})
	for i := 1; i <= n; i++ {
		edge(i) // where nobody stands
	}
	for _, d := range all {
		w.tables[d] = fake.NewFlowTable(nil)
		w.layouts[d] = drawLayout(t)
		over := w.ledger.Reading(d, w.layouts[d])
		w.declare(t, "network", "switch/"+d.String(), network.Basics(d).Rules)
		over()
	}
	return w
}

// drawLayout draws whether a switch has tables, and which numbers they have.
func drawLayout(t *rapid.T) rule.Layout {
	if rapid.Bool().Draw(t, "one table") {
		return rule.OneTable
	}
	service := rapid.Uint8Range(1, 9).Draw(t, "table service")
	l, err := rule.NewLayout(0, service, service+rapid.Uint8Range(1, 9).Draw(t, "behind it"))
	if err != nil {
		t.Fatalf("layout: %v", err)
	}
	return l
}

// IsEdge and EdgePorts make the world what default forwarding asks for edges.
func (w *world) IsEdge(at network.PortRef) bool { return slices.Contains(w.edges[at.Switch], at.Port) }

func (w *world) BlockedPorts(openflow.DatapathID) []uint32 { return nil }

func (w *world) EdgePorts(d openflow.DatapathID) []uint32 { return w.edges[d] }

// path is the way of fewest links between two ports.
func (w *world) path(from, to network.PortRef) []network.Hop {
	p, _ := w.top.Path(from, to, network.MetricHops) // all switches are joined
	return p.Hops
}

// apply brings a program into the tables by way of the ledger. It is false for one that the
// ledger refuses.
func (w *world) apply(t fataler, owner, key string, p network.Program) bool {
	o, err := w.ledger.AddOwner(owner, false)
	if err != nil {
		o = w.ledger.OwnerOf(rule.MakeCookie(rule.OwnerHash(owner), 1, 1))
	}
	c, err := w.ledger.Plan(o, key, p)
	if err != nil {
		return false
	}
	for _, op := range append(c.Writes, c.Deletes...) {
		if e := w.change(op.Switch, op.Message); e != nil {
			t.Fatalf("%s, %s: switch %v refuses %v: %v", owner, key, op.Switch, op.Message, e)
		}
	}
	c.Confirm()
	return true
}

type fataler interface{ Fatalf(string, ...any) }

// change has a switch carry out a message.
func (w *world) change(d openflow.DatapathID, m openflow.Message) (e *openflow.Error) {
	switch m := m.(type) {
	case *openflow.FlowMod:
		if w.mistake != nil {
			wrong := *m
			w.mistake(&wrong)
			m = &wrong
		}
		_, e = w.tables[d].Flow(m)
	case *openflow.GroupMod:
		_, e = w.tables[d].Group(m)
	case *openflow.MeterMod:
		e = w.tables[d].Meter(m)
	}
	return e
}

// String shows what has been declared, for who looks for a mistake.
func (w *world) String() string {
	s := ""
	for _, d := range w.top.Switches {
		s += fmt.Sprintf("switch %v, tables: %v\n", d, w.layouts[d].Tables())
		for _, e := range w.tables[d].Entries() {
			stage, offset, _ := rule.OfPriority(e.Priority)
			s += fmt.Sprintf("  table %d, %-8v %4d: %v\n", e.Table, stage, offset, &e.FlowMod)
		}
	}
	for _, l := range w.top.Links {
		s += fmt.Sprintf("link %v - %v\n", l.From, l.To)
	}
	for _, p := range w.parties {
		s += fmt.Sprintf("%s: %v %v vlan %d at %v\n", p.name, p.ip, p.mac, p.vlan, p.at)
	}
	return s
}
