package route

import (
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// branchMAC is the destination that copies have from the join to the end of a branch. It
// distinguishes them from the device's other packets on the same links: those for other devices on
// their way up, or those of the tree that will serve the device after its move.
var branchMAC = openflow.MAC{0x02, 0x51, 0x1c, 0, 0, 0x02}

// entry is one rule of a plan, in the form in which the search for waves uses it.
type entry struct {
	sw openflow.DatapathID
	// up reports whether the rule is for packets from the device; otherwise it is for packets to
	// it.
	up bool
	// in is the ingress port, or zero for all.
	in uint32
	// mac is the source of packets from the device, or the destination of packets to it; zero for
	// all.
	mac  openflow.MAC
	outs [2]out
	n    uint8
}

// out is one copy of the packet.
type out struct {
	port uint32
	mac  openflow.MAC    // written as destination, zero to leave it unchanged
	to   network.PortRef // where the link from port leads, zero if there is none
}

// add adds a copy.
func (e *entry) add(o out) {
	e.outs[e.n] = o
	e.n++
}

// sameMatch reports whether two entries match the same packets of a switch.
func (e *entry) sameMatch(o *entry) bool {
	return e.up == o.up && e.in == o.in && e.mac == o.mac
}

// rule returns the entry as a rule for the ledger.
func (e *entry) rule(w *Want) network.Rule {
	r := network.Rule{Switch: e.sw, Stage: network.StageDevice, Offset: rule.DeviceUp}
	oxms := [4]openflow.OXM{openflow.EthType(packet.TypeIPv4)}
	match := oxms[:1]
	if e.in != 0 {
		match = append(match, openflow.InPort(e.in))
	}
	if e.up {
		match = append(match, openflow.IPSrc(w.IP))
		if !e.mac.IsZero() {
			match = append(match, openflow.EthSrc(e.mac))
		}
		r.Actions = e.upActions(w)
	} else {
		match = append(match, openflow.IPDst(w.IP))
		r.Offset = rule.DeviceDown
		switch {
		case !e.mac.IsZero():
			match = append(match, openflow.EthDst(e.mac))
			r.Offset = rule.DeviceBranch
		case e.in != 0:
			r.Offset = rule.DeviceDownPort
		}
		r.Actions = e.downActions()
	}
	r.Match = openflow.MustMatch(match...)
	return r
}

// upActions returns the actions for packets from the device.
func (e *entry) upActions(w *Want) []openflow.Action {
	actions := make([]openflow.Action, 0, 2)
	if !e.mac.IsZero() && e.mac != w.Home {
		actions = append(actions, openflow.SetField(openflow.EthSrc(w.Home)))
	}
	return append(actions, openflow.Output(e.output(e.outs[0].port)))
}

// downActions returns the actions for packets to the device. Copies that are not rewritten are
// sent first.
func (e *entry) downActions() []openflow.Action {
	actions := make([]openflow.Action, 0, 2*e.n)
	for _, o := range e.outs[:e.n] {
		if o.mac.IsZero() {
			actions = append(actions, openflow.Output(e.output(o.port)))
		}
	}
	for _, o := range e.outs[:e.n] {
		if !o.mac.IsZero() {
			actions = append(actions, openflow.SetField(openflow.EthDst(o.mac)), openflow.Output(e.output(o.port)))
		}
	}
	return actions
}

// output returns the port of an output action. A packet that leaves by its ingress port needs a
// reserved port number.
func (e *entry) output(port uint32) uint32 {
	return network.Hop{In: e.in, Out: port}.Output()
}
