package network

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/network/trace"
	"github.com/sluice-net/sluice/openflow"
)

// Trace returns what happens to a described packet: which rule of which owner handles it in each
// switch on its path, and why. It uses the rules that the switches have at this moment, not those
// that they should have. If the description does not say where the packet enters, or which MAC
// addresses belong to its IP addresses, Trace takes these from the host table.
func (n *Network) Trace(ctx context.Context, d trace.Description) (trace.Trace, error) {
	v := &traceView{ctx: ctx, n: n, topo: n.Topology(), cache: map[openflow.DatapathID]*switchRules{}}
	if err := v.complete(&d); err != nil {
		return trace.Trace{}, err
	}
	defer func() {
		for _, done := range v.done {
			done()
		}
	}()
	t := trace.Run(v, d.At, d.Packet)
	if err := errors.Join(v.errs...); err != nil {
		return trace.Trace{}, fmt.Errorf("reading rules for a trace: %w", err)
	}
	return t, nil
}

// traceView gives a trace access to the network. It reads the rules of each switch once.
type traceView struct {
	ctx   context.Context
	n     *Network
	topo  *topology.Topology
	done  []func() // release the memory of the replies
	cache map[openflow.DatapathID]*switchRules
	errs  []error
}

type switchRules struct {
	rules  []InstalledRule
	groups map[uint32]Group
}

// complete completes a description from the host table.
func (v *traceView) complete(d *trace.Description) error {
	src, knownSrc := v.described(d, openflow.FieldEthSrc, openflow.FieldIPv4Src, openflow.FieldIPv6Src, openflow.FieldARPSPA)
	if knownSrc && !d.Said[openflow.FieldEthSrc] {
		d.Packet = d.Packet.With(openflow.EthSrc(src.MAC))
	}
	dst, knownDst := v.described(d, openflow.FieldEthDst, openflow.FieldIPv4Dst, openflow.FieldIPv6Dst)
	if knownDst && !d.Said[openflow.FieldEthDst] {
		d.Packet = d.Packet.With(openflow.EthDst(dst.MAC))
	}
	at := &d.At
	switch {
	case at.Switch != 0 && at.Port != 0:
	case !knownSrc:
		return fmt.Errorf("%w: no host is known with the packet's source address: say where it comes in, as in switch=%v,in_port=1", ErrUnknownHost, openflow.DatapathID(1))
	case at.Switch != 0 && at.Switch != src.At.Switch:
		return fmt.Errorf("%w: the packet's source is known at %v, not at switch %v: say in_port too", ErrUnknownHost, src.At, at.Switch)
	case at.Port != 0:
		at.Switch = src.At.Switch
	default:
		*at = src.At
	}
	_, err := v.n.switches.mustBeUp(at.Switch)
	return err
}

// described returns the host that the first described field identifies.
func (v *traceView) described(d *trace.Description, fields ...openflow.Field) (Host, bool) {
	for _, f := range fields {
		o, ok := d.Packet.Get(f)
		if !ok || !d.Said[f] {
			continue
		}
		if f == openflow.FieldEthSrc || f == openflow.FieldEthDst {
			vlan, _ := d.Packet.Get(openflow.FieldVLANVID)
			return v.n.HostByMAC(o.MAC(), uint16(vlan.Uint())&0xfff)
		}
		return v.n.HostByIP(o.Addr())
	}
	return Host{}, false
}

func (v *traceView) read(d openflow.DatapathID) (*switchRules, bool) {
	if r, ok := v.cache[d]; ok {
		return r, true
	}
	s, ok := v.n.Switch(d)
	if !ok {
		return nil, false
	}
	r, err := v.readSwitch(s)
	if err != nil {
		v.errs = append(v.errs, err)
		return nil, false
	}
	v.cache[d] = r
	return r, true
}

// Rules implements trace.Network.
func (v *traceView) Rules(d openflow.DatapathID) ([]InstalledRule, bool) {
	r, ok := v.read(d)
	if !ok {
		return nil, false
	}
	return r.rules, true
}

// Group implements trace.Network.
func (v *traceView) Group(d openflow.DatapathID, id uint32) (Group, bool) {
	r, ok := v.read(d)
	if !ok {
		return Group{}, false
	}
	g, ok := r.groups[id]
	return g, ok
}

// LinkFrom implements trace.Network.
func (v *traceView) LinkFrom(at PortRef) (Link, bool) { return v.topo.LinkFrom(at) }

// HostsAt implements trace.Network.
func (v *traceView) HostsAt(at PortRef) []string {
	var out []string
	for _, h := range v.n.Hosts() {
		if h.At != at {
			continue
		}
		s := h.MAC.String()
		if len(h.IPs) > 0 {
			s += " " + strings.ReplaceAll(strings.Trim(fmt.Sprint(h.IPs), "[]"), " ", ", ")
		}
		out = append(out, s)
	}
	return out
}

// Controller implements trace.Network.
func (v *traceView) Controller() string {
	return "the controller, where these are asked in turn: " + strings.Join(v.n.Handlers(), ", ")
}

// readSwitch reads all rules and groups of a switch, whoever wrote them.
func (v *traceView) readSwitch(s *Switch) (*switchRules, error) {
	flows, done, err := askFlows(v.ctx, s.ch, openflow.AllFlows())
	if err != nil {
		return nil, err
	}
	v.done = append(v.done, done)
	names := map[rule.Cookie]string{}
	for _, r := range v.n.ledger.SwitchRules(s.dpid) {
		names[r.Cookie] = r.Name
	}
	out := &switchRules{groups: map[uint32]Group{}}
	for f := range flows {
		out.rules = append(out.rules, v.toInstalled(s.dpid, f, names))
	}
	groups, done, err := ask[openflow.GroupDescReply](v.ctx, s.ch, &openflow.GroupDescRequest{})
	v.done = append(v.done, done)
	if err != nil && !errors.Is(err, ErrRefused) { // groups are optional in the protocol
		return nil, err
	}
	for g := range groups {
		out.groups[g.Group] = Group{Switch: s.dpid, ID: g.Group, Type: g.Type, Buckets: g.Buckets}
	}
	return out, nil
}

// toInstalled converts a rule as a switch lists it, and adds its owner.
func (v *traceView) toInstalled(d openflow.DatapathID, f *openflow.FlowStats, names map[rule.Cookie]string) InstalledRule {
	c := rule.Cookie(f.Cookie)
	stage, offset, _ := rule.OfPriority(f.Priority)
	r := InstalledRule{
		Rule:   Rule{Switch: d, Stage: stage, Offset: offset, Match: f.Match},
		Number: f.Table,
		Cookie: c, Name: names[c], Confirmed: true, Packets: f.Packets, Bytes: f.Bytes,
	}
	if o := v.n.ledger.OwnerOf(c); o != nil {
		r.Owner = o.Name
	}
	if flow, ok := rule.FlowOf(f.Match); ok && r.Owner == ownerForward {
		r.Name = flowName(flow)
	}
	for _, in := range f.Instructions {
		switch in.Type {
		case openflow.InstructionApplyActions:
			r.Actions = in.Actions
		case openflow.InstructionMeter:
			r.Meter = in.Meter
		case openflow.InstructionGotoTable:
			r.Next = in.Table
		default:
			r.Name = strings.TrimSpace(fmt.Sprintf("%s (%v is not followed)", r.Name, in))
		}
	}
	return r
}
