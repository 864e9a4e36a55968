package route

import (
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// branchMAC is the destination that copies bear from the join to the end of a
// branch. By it they are told from the same device's other packets, which may go
// along the same links: those of other devices on their way up, or those of the
// tree that will be when the device has moved.
var branchMAC = openflow.MAC{0x02, 0x51, 0x1c, 0, 0, 0x02}

// entry is one rule of a plan, in the form in which waves are searched.
type entry struct {
	sw openflow.DatapathID
	// up is for packets from the device, else it is for those to the device.
	up bool
	// in is the port, zero for all.
	in uint32
	// mac is the sender of packets from the device, the destination of those to
	// it, zero for all.
	mac  openflow.MAC
	outs [2]out
	n    uint8
}

// out is one copy of the packet.
type out struct {
	port uint32
	mac  openflow.MAC    // written as destination, zero for none
	to   network.PortRef // where the link from port leads, zero for none
}

func (e *entry) add(o out) {
	e.outs[e.n] = o
	e.n++
}

// samePlace reports whether two entries match the same packets of a switch.
func (e *entry) samePlace(o *entry) bool {
	return e.up == o.up && e.in == o.in && e.mac == o.mac
}

// rule is the entry as the ledger takes it.
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

func (e *entry) upActions(w *Want) []openflow.Action {
	actions := make([]openflow.Action, 0, 2)
	if !e.mac.IsZero() && e.mac != w.Home {
		actions = append(actions, openflow.SetField(openflow.EthSrc(w.Home)))
	}
	return append(actions, openflow.Output(e.output(e.outs[0].port)))
}

// downActions sends the copies that are not rewritten first.
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

// output is what an action names to send by a port: not its number, if packets
// come in by it.
func (e *entry) output(port uint32) uint32 {
	return network.Hop{In: e.in, Out: port}.Output()
}
