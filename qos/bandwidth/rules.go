package bandwidth

import (
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Punts are the rules that bring the first packets of critical traffic from one switch to the
// controller.
func Punts(d openflow.DatapathID, definitions []*Definition) network.Program {
	return punts(d, definitions)
}

// FlowRules are those of the flow that a packet belongs to, along a path, without meters; false
// if it belongs to none. sees tells whether a switch matches TCP's flags.
func FlowRules(h *packet.Headers, path network.Path, idle time.Duration, sees func(openflow.DatapathID) bool) (network.Program, bool) {
	f, ok := headerOf(h)
	if !ok {
		return network.Program{}, false
	}
	none := func(network.PortRef) uint32 { return 0 }
	p := program(f, path, idle, none)
	p.Rules = append(p.Rules, copies(f, path, none, sees)...)
	return p, true
}
