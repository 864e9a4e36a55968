package sos

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// Capable reports whether a switch can set a field.
type Capable func(openflow.DatapathID, openflow.Field) bool

// ErrIncapable means that no switch on the path between an end host and its agent can
// rewrite a field that has to be rewritten.
var ErrIncapable = errors.New("no switch on the path can rewrite the field")

// Layout holds everything that is needed to compute the rules between a session's end hosts and
// their agents.
type Layout struct {
	Client, Server netip.AddrPort
	ClientSide     Side
	ServerSide     Side
	// Steered reports whether the network knew a path between the agents. The rules of a Layout do
	// not depend on it, but a restarted controller waits for such a path.
	Steered bool `json:",omitempty"`
	// PeersRouted reports whether the agents reach each other through a router, so that the
	// controller cannot choose their path.
	PeersRouted bool `json:",omitempty"`
	// DSCP is the DSCP of the client's first packet.
	DSCP uint8 `json:",omitempty"`
	// Up and Down are the treatments promised to the packets of the client and of the
	// server.
	Up   network.Treatment `json:",omitzero"`
	Down network.Treatment `json:",omitzero"`
}

// Side is one half of a session: an end host as its interception switch sees it, the agent
// that stands in for the other end, and the path between the two.
type Side struct {
	// EndMAC is the MAC address by which the end host is reached from the interception switch: its
	// own, or that of the router in between.
	EndMAC openflow.MAC
	// FarMAC is the MAC address that the end host uses for the other end: that of the other end
	// host, or that of the router towards it.
	FarMAC openflow.MAC
	// EndVLAN is the VLAN of the end host's packets at the interception switch.
	EndVLAN uint16

	Agent     netip.Addr
	AgentPort uint16
	AgentMAC  openflow.MAC
	AgentVLAN uint16
	// PuntsSYN reports whether the interception switch distinguishes first packets of connections
	// from others. It then sends all first packets to the controller, which forwards them to the
	// agent, and the session's rule matches only the other packets. Only the client's side sets it.
	PuntsSYN bool `json:",omitempty"`
	// OnLink reports whether the agent addresses its frames to the end host itself, so that their
	// destination need not be rewritten.
	OnLink bool

	// Path leads from the end host to the agent. It enters its first switch, the
	// interception switch, by the end host's port, and leaves the last switch by the
	// agent's.
	Path []network.Hop
	// MobilePaths holds the paths of a mobile end host; Path is one of them. They lead to the agent
	// from every border switch, that is, from every switch that all of the host's packets pass,
	// wherever the host is, and from every port by which the packets may come in there. EndMAC is
	// then the host's address at these switches.
	MobilePaths [][]network.Hop `json:"Ways,omitempty"`
}

// agentAt returns the port at which the path to the agent ends.
func (sd *Side) agentAt() network.PortRef { return outPort(sd.Path[len(sd.Path)-1]) }

// allPaths returns the paths by which the end host's packets may reach the agent.
func (sd *Side) allPaths() [][]network.Hop {
	if sd.isMobile() {
		return sd.MobilePaths
	}
	return [][]network.Hop{sd.Path}
}

// isMobile reports whether the end host can move without a change of the session's rules.
func (sd *Side) isMobile() bool { return len(sd.MobilePaths) > 0 }

// ClientRules returns the rules at the client's side (1 and 2 of the published table). The rules
// for packets to the client come first.
func (l Layout) ClientRules(can Capable) ([]network.Rule, error) {
	return sideRules(l.ClientSide, l.Client, l.Server, can)
}

// Opening returns the actions for the client's first packet at the port where it came in. If the
// side punts SYNs, these are the actions of rule 1. Otherwise the packet is sent through the
// tables, because rule 1 matches it as well.
func (l Layout) Opening(can Capable, at network.PortRef) ([]openflow.Action, error) {
	side := &l.ClientSide
	if !side.PuntsSYN {
		return []openflow.Action{openflow.Output(openflow.PortTable)}, nil
	}
	if side.isMobile() {
		i := slices.IndexFunc(side.MobilePaths, func(path []network.Hop) bool { return inPort(path[0]) == at })
		if i < 0 {
			return nil, fmt.Errorf("from %v to agent %v: %w", at, side.Agent, network.ErrNoPath)
		}
		side.Path, side.MobilePaths = side.MobilePaths[i], nil
	}
	rules, err := l.ClientRules(can)
	if err != nil {
		return nil, err
	}
	return rules[len(rules)-1].Actions, nil
}

// ServerRules returns the rules at the server's side (7 and 8).
func (l Layout) ServerRules(can Capable) ([]network.Rule, error) {
	return sideRules(l.ServerSide, l.Server, l.Client, can)
}

// rulesOf returns the rules of one side: first those towards the end host, then those towards the
// agent. Each group is ordered from its far end to the switch where packets come in.
func (l *Layout) rulesOf(r agentapi.Role, can Capable) ([]network.Rule, error) {
	client, err := l.ClientRules(can)
	if err != nil {
		return nil, err
	}
	server, err := l.ServerRules(can)
	if err != nil {
		return nil, err
	}
	return ofRole(r, client, server), checkDisjoint(slices.Concat(client, server))
}

func (l *Layout) side(r agentapi.Role) *Side { return ofRole(r, &l.ClientSide, &l.ServerSide) }

func sideRules(s Side, end, far netip.AddrPort, can Capable) ([]network.Rule, error) {
	if len(s.Path) == 0 {
		return nil, fmt.Errorf("%v: %w to agent %v", end.Addr(), network.ErrNoPath, s.Agent)
	}
	agent := netip.AddrPortFrom(s.Agent, s.AgentPort)
	// Packets from the end host arrive at the agent with the agent's address as destination.
	// Packets from the agent arrive at the end host with the far end's address as source.
	sent := header{vlan: s.EndVLAN, src: end, dst: far}
	arrives := header{vlan: s.AgentVLAN, src: end, dst: agent, ethDst: s.AgentMAC}
	answer := header{vlan: s.AgentVLAN, src: agent, dst: end}
	seen := header{vlan: s.EndVLAN, src: far, dst: end, ethSrc: s.FarMAC}
	if !s.OnLink || s.isMobile() {
		seen.ethDst = s.EndMAC
	}
	if s.isMobile() {
		return s.mobileRules(sent, arrives, answer, seen, can)
	}
	back := kit.Reversed(s.Path)
	toEnd, err := chain(back, answer, seen, can, lastCapable)
	if err != nil {
		return nil, err
	}
	toAgent, err := chain(s.Path, sent, arrives, can, firstCapable)
	if err != nil {
		return nil, err
	}
	if err := s.exceptSYN(&toAgent[0]); err != nil {
		return nil, err
	}
	// A rule works only once the rules behind it do, so the switches at the end of each chain are
	// written first.
	slices.Reverse(toEnd)
	slices.Reverse(toAgent)
	return append(toEnd, toAgent...), nil
}

// exceptSYN makes a rule not match first packets of connections, if the side punts them.
func (sd *Side) exceptSYN(r *network.Rule) (err error) {
	if !sd.PuntsSYN {
		return nil
	}
	if r.Match, err = r.Match.With(openflow.TCPFlags(0, tcpSYN)); err != nil {
		return fmt.Errorf("switch %v: %w", r.Switch, err)
	}
	return nil
}

// chain returns the rules that forward a connection's packets along a path and change their headers
// from the fields of from to those of to, each field at the switch that pick chooses.
func chain(path []network.Hop, from, to header, can Capable, pick picker) ([]network.Rule, error) {
	if from.src.Addr().Is4() != to.src.Addr().Is4() || from.dst.Addr().Is4() != to.dst.Addr().Is4() {
		return nil, fmt.Errorf("%v and %v are of different address families: the agent needs an address of the connection's family", from, to)
	}
	now, then := from.fields(), to.fields()
	at := make([][]int, len(path))
	for _, f := range now.changes(then) {
		hop, ok := pick(path, then[f].Field, can)
		if !ok {
			return nil, fmt.Errorf("%s: %w: %v", fieldNames[f], ErrIncapable, switchesOf(path))
		}
		at[hop] = append(at[hop], f)
	}
	rules := make([]network.Rule, 0, len(path))
	for i, hop := range path {
		match, err := now.match(openflow.InPort(hop.In))
		if err != nil {
			return nil, fmt.Errorf("switch %v: %w", hop.Switch, err)
		}
		var actions []openflow.Action
		for _, f := range at[i] {
			if now[f] = then[f]; f == fieldVLAN {
				actions = append(actions, retag(from.vlan, to.vlan)...)
			} else {
				actions = append(actions, openflow.SetField(then[f]))
			}
		}
		rules = append(rules, network.Rule{
			Switch: hop.Switch, Stage: network.StageRewrite, Offset: rule.RewriteSession, Match: match,
			Actions: append(actions, openflow.Output(hop.Output())),
		})
	}
	return rules, nil
}

// picker chooses the hop at which a field is set.
type picker func([]network.Hop, openflow.Field, Capable) (int, bool)

// firstCapable returns the earliest hop that can set a field: the interception switch or,
// if that switch cannot, the first capable one behind it.
func firstCapable(path []network.Hop, f openflow.Field, can Capable) (int, bool) {
	i := slices.IndexFunc(path, func(h network.Hop) bool { return can(h.Switch, f) })
	return i, i >= 0
}

// lastCapable mirrors firstCapable in the opposite direction, so that both directions of a
// connection are rewritten at the same switch.
func lastCapable(path []network.Hop, f openflow.Field, can Capable) (int, bool) {
	for i := len(path) - 1; i >= 0; i-- {
		if can(path[i].Switch, f) {
			return i, true
		}
	}
	return 0, false
}

// inPort and outPort return the ports by which packets enter and leave a hop's switch.
func inPort(h network.Hop) network.PortRef { return network.PortRef{Switch: h.Switch, Port: h.In} }

func outPort(h network.Hop) network.PortRef { return network.PortRef{Switch: h.Switch, Port: h.Out} }

func switchesOf(path []network.Hop) []openflow.DatapathID {
	out := make([]openflow.DatapathID, len(path))
	for i, h := range path {
		out[i] = h.Switch
	}
	return out
}

// checkDisjoint returns an error if rules would overwrite each other. That happens if
// switches that cannot rewrite make both sides of a session look alike on a shared link.
func checkDisjoint(rules []network.Rule) error {
	type place struct {
		dpid  openflow.DatapathID
		match openflow.Match
	}
	seen := make(map[place]network.Rule, len(rules))
	for _, r := range rules {
		at := place{r.Switch, r.Match}
		if other, ok := seen[at]; ok && !slices.Equal(other.Actions, r.Actions) {
			return fmt.Errorf("switch %v: two rules of the session for the same packets (%v): %w", r.Switch, r.Match, network.ErrConflict)
		}
		seen[at] = r
	}
	return nil
}

// complete adds the agents' replies, which contain the ports that they have bound, to the layout.
func (l *Layout) complete(client, server agentapi.PrepareReply) error {
	for _, x := range []struct {
		side  *Side
		reply agentapi.PrepareReply
	}{{&l.ClientSide, client}, {&l.ServerSide, server}} {
		if x.reply.Port == 0 {
			return fmt.Errorf("agent %v answered without a port", x.side.Agent)
		}
		x.side.AgentPort, x.side.OnLink = x.reply.Port, x.reply.OnLink
	}
	l.PeersRouted = !client.PeerOnLink || !server.PeerOnLink
	if l.ServerSide.FarMAC.IsZero() && server.NextHopMAC != "" {
		mac, err := openflow.ParseMAC(server.NextHopMAC)
		if err != nil {
			return fmt.Errorf("next hop of agent %v: %w", l.ServerSide.Agent, err)
		}
		l.ServerSide.FarMAC = mac
	}
	return nil
}

// ends returns the address of the end host on a side, and that of the other end host.
func (l *Layout) ends(r agentapi.Role) (end, far netip.AddrPort) {
	return ofRole(r, l.Client, l.Server), ofRole(r, l.Server, l.Client)
}

// ofRole returns client or server, depending on the role.
func ofRole[T any](r agentapi.Role, client, server T) T {
	if r == agentapi.RoleClient {
		return client
	}
	return server
}

func other(r agentapi.Role) agentapi.Role { return ofRole(r, agentapi.RoleServer, agentapi.RoleClient) }

var roles = [2]agentapi.Role{agentapi.RoleClient, agentapi.RoleServer}

// agentFlow returns the flow from a side's agent to its end host as the agent sends it,
// before any switch rewrites it.
func (l *Layout) agentFlow(r agentapi.Role) flow {
	side := l.side(r)
	end, _ := l.ends(r)
	return flow{client: netip.AddrPortFrom(side.Agent, side.AgentPort), server: end}
}
