package tables

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/subflows"
)

// joinMark is the DSCP of SYNs that open further subflows.
const joinMark = 11

// subflowsWorld are further subflows that have been placed, and which switches see TCP's flags.
type subflowsWorld struct {
	flows []placedFlow
	sees  map[openflow.DatapathID]bool
}

// drawSubflows draws some that have been placed, and has all switches ask about others.
func (w *world) drawSubflows(t *rapid.T) {
	s := &subflowsWorld{sees: map[openflow.DatapathID]bool{}}
	w.subflows = s
	for _, sw := range w.top.Switches {
		s.sees[sw] = rapid.Bool().Draw(t, "sees TCP flags")
		w.declare(t, subflows.Owner, "punt/"+sw.String(), subflows.Punts(sw, joinMark, s.sees[sw]).Rules)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "subflows") {
		of := w.drawConnection(t)
		if of.from == of.to {
			continue
		}
		f := w.placed(w.segment(of))
		p, ok := subflows.FlowRules(&f.first, network.Path{Hops: f.path}, time.Minute)
		if !ok {
			t.Fatalf("%+v is of no subflow", f.first)
		}
		if w.apply(t, subflows.Owner, fmt.Sprint("subflow/", i), p) {
			s.flows = append(s.flows, f)
		}
	}
}

// placed is the way of a subflow's packets.
func (s *subflowsWorld) placed(at network.PortRef, h *packet.Headers) ([]copyOut, bool) {
	return follow(s.flows, nil, at, h)
}

// joins says whether a packet is a SYN with the mark. Switches that do not see TCP's flags ask
// about all segments, and fragments, that have it.
func (s *subflowsWorld) joins(at network.PortRef, h *packet.Headers) bool {
	if !h.Has(packet.IPv4) || h.Proto != packet.ProtoTCP || h.DSCP != joinMark {
		return false
	}
	return !s.sees[at.Switch] || h.Has(packet.TCP) && h.TCPFlags&(packet.SYN|packet.ACK) == packet.SYN
}

// joining is a SYN with the mark, of a subflow that has been placed or another.
func (r traffic) joining() (network.PortRef, packet.Headers) {
	at, h := r.anything()
	if flows := r.w.subflows.flows; len(flows) > 0 && r.IntN(2) == 0 {
		at, h = r.ofPlaced(flows)
	}
	if h.Has(packet.TCP) {
		h.DSCP, h.TCPFlags = joinMark, pick(r, uint16(packet.SYN), packet.SYN, packet.ACK)
	}
	return at, h
}
