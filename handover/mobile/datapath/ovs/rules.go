package ovs

import (
	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// vniPort is the bridge's own port.
const vniPort = openflow.PortLocal

// gate is the table that decides who may pass.
const gate = 0

// Priorities within a table; rules of different priority overlap.
const (
	prioDrop  = 10 // what nothing else takes, so that it is counted
	prioPlain = 20
	prioARP   = 30
	prioND    = 40
	prioDHCP  = 50
	prioOwn   = 60
	prioLink  = 70
)

const (
	typeEAPOL  = 0x888e
	dhcpClient = 68
	groupBit   = 0x010000000000
	linkGroups = 0xfffffffffff0
)

var (
	anyGroup  = openflow.MAC{0x01}
	linkGroup = openflow.MAC{0x01, 0x80, 0xc2}
)

// port is an attached interface as the switch knows it.
type port struct {
	datapath.Interface
	number uint32
	slot   int
}

func (p port) inTable() uint8  { return uint8(1 + 2*p.slot) }
func (p port) outTable() uint8 { return uint8(2 + 2*p.slot) }

// What a rule's cookie counts.
const (
	countSent uint64 = iota + 1
	countReceived
	countInactive
	countForeign
	countUnsent
	countOther
)

// cookie marks the rules that count one thing for one slot.
func cookie(slot int, what uint64) uint64 { return uint64(slot)<<8 | what }

func flow(table uint8, priority uint16, cookie uint64, match []openflow.OXM, instructions ...openflow.Instruction) *openflow.FlowMod {
	m := openflow.NewFlowMod(openflow.FlowAdd, table, priority, openflow.MustMatch(match...), instructions...)
	m.Cookie = cookie
	return m
}

func fields(f ...openflow.OXM) []openflow.OXM { return f }

// baseRules hold whatever is attached.
func baseRules() []openflow.Message {
	return []openflow.Message{
		flow(gate, prioDrop, cookie(0, countUnsent), fields(openflow.InPort(vniPort))),
	}
}

// portRules are those of one interface, whether it is in use or not.
func portRules(p port, vni openflow.MAC) []openflow.Message {
	rules := []openflow.Message{
		flow(gate, prioDrop, cookie(p.slot, countInactive), fields(openflow.InPort(p.number))),
	}
	rules = append(rules, outRules(p, vni)...)
	return append(rules, inRules(p, vni)...)
}

// outRules make frames of the VNI frames of the interface.
func outRules(p port, vni openflow.MAC) []openflow.Message {
	table, sent := p.outTable(), cookie(p.slot, countSent)
	send := func(sets ...openflow.OXM) openflow.Instruction {
		return rewrite(p.number, append(sets, openflow.EthSrc(p.MAC))...)
	}
	arp := openflow.EthType(packet.TypeARP)
	nd := func(kind uint8, more ...openflow.OXM) []openflow.OXM {
		return append(more, openflow.EthType(packet.TypeIPv6), openflow.IPProto(packet.ProtoICMPv6), openflow.ICMPv6Type(kind))
	}
	ask := openflow.ApplyActions(openflow.OutputController(openflow.MaxLenNoBuffer))
	return []openflow.Message{
		flow(table, prioPlain, sent, nil, send()),
		flow(table, prioARP, sent, fields(arp), send(openflow.ARPSHA(p.MAC))),
		flow(table, prioND, sent, fields(arp, openflow.ARPTHA(vni)), send(openflow.ARPSHA(p.MAC), openflow.ARPTHA(p.MAC))),
		flow(table, prioND, sent, nd(packet.NeighborSolicitation, openflow.NDSLL(vni)), send(openflow.NDSLL(p.MAC))),
		flow(table, prioND, sent, nd(packet.NeighborAdvertisement, openflow.NDTLL(vni)), send(openflow.NDTLL(p.MAC))),
		flow(table, prioND, sent, nd(packet.RouterSolicitation), ask),
		flow(table, prioND, sent, nd(packet.RouterAdvertisement), ask),
	}
}

// inRules make frames that come in by the interface frames for the VNI.
func inRules(p port, vni openflow.MAC) []openflow.Message {
	table := p.inTable()
	received, foreign, other := cookie(p.slot, countReceived), cookie(p.slot, countForeign), cookie(p.slot, countOther)
	arp := openflow.EthType(packet.TypeARP)
	mine, group := openflow.EthDst(p.MAC), openflow.EthDst(anyGroup).WithMask(groupBit)
	return []openflow.Message{
		flow(table, prioLink, other, fields(openflow.EthType(typeEAPOL))),
		flow(table, prioLink, other, fields(openflow.EthDst(linkGroup).WithMask(linkGroups))),
		flow(table, prioOwn, foreign, fields(openflow.EthSrc(p.MAC))),
		flow(table, prioDHCP, other, fields(openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoUDP), openflow.UDPDst(dhcpClient))),
		flow(table, prioARP, received, fields(mine, arp, openflow.ARPTHA(p.MAC)), rewrite(vniPort, openflow.EthDst(vni), openflow.ARPTHA(vni))),
		flow(table, prioARP, received, fields(group, arp, openflow.ARPTHA(p.MAC)), rewrite(vniPort, openflow.ARPTHA(vni))),
		flow(table, prioPlain, received, fields(mine), rewrite(vniPort, openflow.EthDst(vni))),
		flow(table, prioPlain, received, fields(group), rewrite(vniPort)),
		flow(table, prioDrop, foreign, nil),
	}
}

func rewrite(out uint32, sets ...openflow.OXM) openflow.Instruction {
	actions := make([]openflow.Action, 0, len(sets)+1)
	for _, s := range sets {
		actions = append(actions, openflow.SetField(s))
	}
	return openflow.ApplyActions(append(actions, openflow.Output(out))...)
}

// removePort deletes everything that portRules made.
func removePort(p port) []openflow.Message {
	return []openflow.Message{
		openflow.NewFlowMod(openflow.FlowDelete, gate, 0, openflow.MustMatch(openflow.InPort(p.number))),
		openflow.NewFlowMod(openflow.FlowDelete, p.inTable(), 0, openflow.Match{}),
		openflow.NewFlowMod(openflow.FlowDelete, p.outTable(), 0, openflow.Match{}),
	}
}

// gates are the rules of a choice: which table a port's frames go to. A port
// that is not in it has no such rule, and its frames meet the drop below.
type gates map[uint32]uint8

func gatesOf(c datapath.Choice, ports map[string]port) gates {
	g := gates{}
	if p, ok := ports[c.Send]; ok {
		g[vniPort] = p.outTable()
	}
	for _, name := range c.Receive {
		if p, ok := ports[name]; ok {
			g[p.number] = p.inTable()
		}
	}
	return g
}

// change is what turns the rules of one choice into those of another.
func (g gates) change(to gates) []openflow.Message {
	var out []openflow.Message
	for number, table := range to {
		if old, ok := g[number]; !ok || old != table {
			out = append(out, flow(gate, prioPlain, cookie(0, countOther), fields(openflow.InPort(number)), openflow.GotoTable(table)))
		}
	}
	for number := range g {
		if _, ok := to[number]; !ok {
			out = append(out, openflow.NewFlowMod(openflow.FlowDeleteStrict, gate, prioPlain, openflow.MustMatch(openflow.InPort(number))))
		}
	}
	return out
}

// count adds a rule's counters to what its cookie says they are.
func count(s *datapath.Stats, names map[int]string, f *openflow.FlowStats) {
	what := f.Cookie & 0xff
	if what == countUnsent {
		s.Unsent += f.Packets
		return
	}
	name, ok := names[int(f.Cookie>>8)]
	if !ok {
		return
	}
	i := s.Interfaces[name]
	switch what {
	case countSent:
		i.SentPackets += f.Packets
		i.SentBytes += f.Bytes
	case countReceived:
		i.ReceivedPackets += f.Packets
		i.ReceivedBytes += f.Bytes
	case countInactive:
		i.Inactive += f.Packets
	case countForeign:
		i.Foreign += f.Packets
	}
	s.Interfaces[name] = i
}
