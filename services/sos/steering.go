package sos

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Steering holds everything that is needed to compute the rules between two agents (3 to 6 of the
// published table). All sessions of the two agents share these rules.
type Steering struct {
	X, Y Terminal
	// Paths holds paths from X to Y. With one path, the agents' packets pass unmodified. With
	// several, path k carries the connections of data port k.
	Paths [][]network.Hop
	// Salt varies the path tags. It is changed if a tag collides with another pair's.
	Salt uint32
	// Treatments lists the treatments of packets between the agents.
	Treatments []TreatmentQueues
}

// Terminal is an agent as one end of a path.
type Terminal struct {
	Addr netip.Addr
	MAC  openflow.MAC
	VLAN uint16
	// DataPorts lists the ports on which the agent listens for other agents, one for each path.
	DataPorts []uint16
}

// Rules returns the rules of both directions. Those of each direction are ordered from its far end.
func (s Steering) Rules(can Capable) ([]network.Rule, error) {
	if len(s.Paths) == 0 {
		return nil, nil
	}
	if len(s.Paths) == 1 || !s.taggable(can) {
		return s.plain(s.Paths[0])
	}
	var rules []network.Rule
	for k, path := range s.Paths {
		there, err := s.tagged(s.X, s.Y, k, path)
		if err != nil {
			return nil, err
		}
		back, err := s.tagged(s.Y, s.X, k, kit.Reversed(path))
		both, err := s.withTreatments(there, back, err)
		if err != nil {
			return nil, err
		}
		rules = append(rules, both...)
	}
	return rules, nil
}

// taggable reports whether the switches at both ends of every path can write tags, and the agents
// have a data port for each path.
func (s Steering) taggable(can Capable) bool {
	for _, path := range s.Paths {
		first, last := path[0].Switch, path[len(path)-1].Switch
		if !can(first, openflow.FieldEthDst) || !can(last, openflow.FieldEthDst) {
			return false
		}
	}
	return len(s.X.DataPorts) >= len(s.Paths) && len(s.Y.DataPorts) >= len(s.Paths)
}

// plain returns the rules of a single path without tags. Packets pass unmodified, except for the
// VLAN if the agents are in different VLANs.
func (s Steering) plain(path []network.Hop) ([]network.Rule, error) {
	direction := func(from, to Terminal, path []network.Hop) (rules []network.Rule, _ error) {
		last := len(path) - 1
		for i := last; i >= 0; i-- {
			hop := path[i]
			fields := append(pairFields(from, to), openflow.InPort(hop.In))
			var actions []openflow.Action
			if i == 0 && from.VLAN != 0 {
				fields = append(fields, openflow.VLANVID(from.VLAN))
			}
			if i == last {
				var more []openflow.OXM
				more, actions = arrive(from.VLAN, to.VLAN, i == 0)
				fields = append(fields, more...)
			}
			match, err := openflow.NewMatch(fields...)
			if err != nil {
				return nil, fmt.Errorf("switch %v: %w", hop.Switch, err)
			}
			rules = append(rules, steeringRule(hop.Switch, match, append(actions, openflow.Output(hop.Output()))))
		}
		return rules, nil
	}
	there, err := direction(s.X, s.Y, path)
	if err != nil {
		return nil, err
	}
	back, err := direction(s.Y, s.X, kit.Reversed(path))
	return s.withTreatments(there, back, err)
}

// arrive returns the match fields and actions that give a packet the receiver's VLAN at the last
// switch. A network on the path may have translated the VLAN already, so the rule accepts any tag
// there. known reports whether the packet also starts at that switch; the tag is then known and
// matched.
func arrive(from, to uint16, known bool) ([]openflow.OXM, []openflow.Action) {
	if from == to {
		return nil, nil
	}
	if from == 0 || known {
		return nil, retag(from, to)
	}
	return []openflow.OXM{openflow.AnyVLAN()}, retag(from, to)
}

// tagged returns the rules for one direction of path k, one of several between the agents.
// The first switch recognises the path by the data port and writes the tag, switches in the
// core match only the tag, and the last switch restores the agent's address.
func (s Steering) tagged(from, to Terminal, k int, path []network.Hop) ([]network.Rule, error) {
	if len(path) < 2 {
		return nil, fmt.Errorf("path %d between %v and %v has no link: %w", k, from.Addr, to.Addr, network.ErrNoPath)
	}
	tag := pathTag(from.Addr, to.Addr, path, s.Salt)
	last := len(path) - 1
	more, actions := arrive(from.VLAN, to.VLAN, false)
	actions = append(actions, openflow.SetField(openflow.EthDst(to.MAC)), openflow.Output(path[last].Output()))
	rules := []network.Rule{steeringRule(path[last].Switch, openflow.MustMatch(append(more, openflow.EthDst(tag))...), actions)}
	for i := last - 1; i > 0; i-- {
		rules = append(rules, steeringRule(path[i].Switch, openflow.MustMatch(openflow.EthDst(tag)), []openflow.Action{openflow.Output(path[i].Out)}))
	}
	first := path[0]
	// The connection was dialled either to data port k of the agent to, or from that agent to data
	// port k of the agent from.
	for _, byPort := range []openflow.OXM{openflow.TCPDst(to.DataPorts[k]), openflow.TCPSrc(from.DataPorts[k])} {
		fields := append(pairFields(from, to), openflow.InPort(first.In), byPort)
		if from.VLAN != 0 {
			fields = append(fields, openflow.VLANVID(from.VLAN))
		}
		match, err := openflow.NewMatch(fields...)
		if err != nil {
			return nil, fmt.Errorf("switch %v: %w", first.Switch, err)
		}
		rules = append(rules, steeringRule(first.Switch, match, []openflow.Action{
			openflow.SetField(openflow.EthDst(tag)), openflow.Output(first.Output()),
		}))
	}
	return rules, nil
}

func pairFields(from, to Terminal) []openflow.OXM {
	return []openflow.OXM{
		openflow.EthType(etherType(from.Addr)), openflow.IPProto(protoTCP),
		openflow.IPSrc(from.Addr), openflow.IPDst(to.Addr),
	}
}

func steeringRule(dpid openflow.DatapathID, m openflow.Match, actions []openflow.Action) network.Rule {
	return network.Rule{Switch: dpid, Stage: network.StageRoute, Offset: rule.RouteAgents, Match: m, Actions: actions}
}

// pathTag returns the locally administered MAC address that tags one path in one direction. It is
// computed from the path itself. A restarted controller therefore computes the same tags again. A
// path that changes gets a new tag, so that the old path keeps working until no packets use it any
// more.
func pathTag(from, to netip.Addr, path []network.Hop, salt uint32) openflow.MAC {
	h := fnv.New64a()
	_, _ = h.Write(from.AsSlice())
	_, _ = h.Write(to.AsSlice())
	b := binary.BigEndian.AppendUint32(nil, salt)
	for _, hop := range path {
		b = binary.BigEndian.AppendUint64(b, uint64(hop.Switch))
		b = binary.BigEndian.AppendUint32(b, hop.In)
		b = binary.BigEndian.AppendUint32(b, hop.Out)
	}
	_, _ = h.Write(b)
	sum := h.Sum(nil)
	return openflow.MAC{0x02, 0x53, sum[4] ^ sum[0], sum[5] ^ sum[1], sum[6] ^ sum[2], sum[7] ^ sum[3]}
}

// pairKey returns the key of a pair in the ledger, whatever the order of its agents.
func pairKey(a, b netip.Addr) string {
	addrs := []netip.Addr{a, b}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return fmt.Sprintf("pair/%v/%v", addrs[0], addrs[1])
}

// pairTreatment is a treatment of packets between two agents. All sessions of the pair to which it
// is promised share it, because its rules match only the agents' addresses and the DSCP.
type pairTreatment struct {
	Name string
	DSCP uint8
	// Back reports whether the packets go from Y to X.
	Back bool
}

// TreatmentQueues is a treatment together with the queues of its packets.
type TreatmentQueues struct {
	pairTreatment
	Queues map[network.PortRef]uint32
}

func (s TreatmentQueues) equal(o TreatmentQueues) bool {
	return s.pairTreatment == o.pairTreatment && maps.Equal(s.Queues, o.Queues)
}

// countTreatments counts a session for the treatments of its pair that the session's layout has
// now, and no longer for earlier ones. The lock is held.
func (s *pairs) countTreatments(ss *session) {
	p := s.all[ss.pair]
	if p == nil {
		return
	}
	for _, x := range ss.treatments {
		p.treatments[x]--
	}
	ss.treatments = nil
	back := ss.Layout.ServerSide.Agent.Less(ss.Layout.ClientSide.Agent)
	for _, x := range []pairTreatment{{ss.Layout.Up.Name, ss.Layout.Up.DSCP, back}, {ss.Layout.Down.Name, ss.Layout.Down.DSCP, !back}} {
		if x.DSCP != 0 {
			p.treatments[x]++
			ss.treatments = append(ss.treatments, x)
		}
	}
}

// sortedTreatments returns the treatments of the pair in a fixed order. The service's lock
// is held.
func (p *pair) sortedTreatments() []pairTreatment {
	return slices.SortedFunc(maps.Keys(p.treatments), func(a, b pairTreatment) int {
		if a.Back != b.Back {
			return map[bool]int{false: -1, true: 1}[a.Back]
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.DSCP, b.DSCP))
	})
}

// dropUnusedTreatments removes the treatments that no session has any more. The lock is held.
func (p *pair) dropUnusedTreatments() {
	maps.DeleteFunc(p.treatments, func(_ pairTreatment, n int) bool { return n == 0 })
}

// carriedPorts returns the ports by which packets of a treatment leave switches between the
// agents.
func (s Steering) carriedPorts(x pairTreatment) (all []network.Carried) {
	for _, path := range s.Paths {
		if x.Back {
			path = kit.Reversed(path)
		}
		for _, h := range path {
			all = append(all, network.Carried{Treatment: x.Name, At: outPort(h), Between: true})
		}
	}
	return all
}

// addTreatments adds treatments with the queues of their packets on the paths.
func (s *Steering) addTreatments(all []pairTreatment, queue func(network.Carried) uint32) {
	for _, x := range all {
		if slices.ContainsFunc(s.Treatments, func(o TreatmentQueues) bool { return o.DSCP == x.DSCP && o.Back == x.Back }) {
			continue // the DSCP belongs to another treatment now, and this one is being withdrawn
		}
		queues := map[network.PortRef]uint32{}
		for _, c := range s.carriedPorts(x) {
			if q := queue(c); q != 0 {
				queues[c.At] = q
			}
		}
		s.Treatments = append(s.Treatments, TreatmentQueues{x, queues})
	}
}

// withTreatments joins the rules of both directions, and adds rules for packets with treatments.
// The added rules have the same actions through a queue, and a higher priority. If err is not nil,
// it returns err.
func (s Steering) withTreatments(there, back []network.Rule, err error) ([]network.Rule, error) {
	if err != nil {
		return nil, err
	}
	all := append(there, back...)
	for i, r := range all {
		for _, x := range s.Treatments {
			q := x.Queues[outputPort(&r)]
			if q == 0 || x.Back != (i >= len(there)) {
				continue
			}
			of, err := s.narrow(r, x.DSCP)
			if err != nil {
				return nil, err
			}
			of.Offset = rule.RouteAgentsTreated
			of.Actions = append([]openflow.Action{openflow.SetQueue(q)}, r.Actions...)
			all = append(all, of)
		}
	}
	return all, nil
}

// narrow returns a copy of a rule that matches only packets with the given DSCP.
func (s Steering) narrow(r network.Rule, dscp uint8) (network.Rule, error) {
	fields := []openflow.OXM{openflow.IPDSCP(dscp)}
	if _, ok := r.Match.Get(openflow.FieldEthType); !ok { // a rule of a tagged path
		fields = append(fields, openflow.EthType(etherType(s.X.Addr)))
	}
	m, err := r.Match.With(fields...)
	if err != nil {
		return r, fmt.Errorf("switch %v: packets between agents with DSCP %d: %w", r.Switch, dscp, err)
	}
	r.Match = m
	return r, nil
}

// carriedPorts returns the ports by which packets with treatments leave switches between
// agents.
func (s *pairs) carriedPorts() (all []network.Carried) {
	s.mu.Lock()
	treated := map[*pair][]pairTreatment{}
	for _, p := range s.all {
		if p.users > 0 {
			treated[p] = p.sortedTreatments()
		}
	}
	s.mu.Unlock()
	for p, list := range treated {
		now := p.current()
		for _, x := range list {
			all = append(all, now.carriedPorts(x)...)
		}
	}
	return all
}
