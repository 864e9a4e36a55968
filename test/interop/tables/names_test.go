package tables

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// namePath is a path between names at two parties.
type namePath struct {
	from, to    *party
	forth, back uint16
	hops        []network.Hop
}

// firstLabel is the first VLAN identifier that is a label.
const firstLabel = 2048

// someTags are the labels that paths have, one that none has, and one that is a VLAN.
var someTags = []uint16{firstLabel, 2055, 4094, 3000, 7}

// drawNames draws paths between names at parties that are in no VLAN, and has the switches lead them.
func (w *world) drawNames(t *rapid.T) {
	w.withNames = true
	var at []*party
	for i := range w.parties {
		if p := &w.parties[i]; p.vlan == 0 {
			at = append(at, p)
		}
	}
	for _, sw := range w.top.Switches {
		w.declare(t, mobilityfirst.Name, "unknown-labels/"+sw.String(), mobilityfirst.UnknownLabels(sw).Rules)
	}
	label := rapid.SampledFrom(someTags[:3])
	for i := range rapid.IntRange(1, 3).Draw(t, "paths between names") {
		p := namePath{rapid.SampledFrom(at).Draw(t, "one end"), rapid.SampledFrom(at).Draw(t, "other end"), label.Draw(t, "label"), label.Draw(t, "label back"), nil}
		if p.from == p.to {
			continue
		}
		p.hops = w.path(p.from.at, p.to.at)
		if w.apply(t, mobilityfirst.Name, fmt.Sprint("path/", i), network.Program{Rules: mobilityfirst.PathRules(p.hops, p.forth, p.back, p.from.mac, p.to.mac)}) {
			w.names = append(w.names, p)
		}
	}
}

// byLabel is where a frame goes that bears the label of a path.
func (w *world) byLabel(at network.PortRef, h *packet.Headers) (copyOut, bool) {
	if !labeled(h) {
		return copyOut{}, false
	}
	for _, p := range w.names {
		label, hops := p.forth, p.hops
		if h.EthSrc == p.to.mac {
			p.from, p.to, label, hops = p.to, p.from, p.back, turned(hops)
		}
		if h.VLANID != label || h.EthSrc != p.from.mac || h.EthDst != p.to.mac {
			continue
		}
		for i, hop := range hops {
			if hop.Switch == at.Switch && hop.In == at.Port {
				out := *h
				if i == len(hops)-1 {
					tag(&out, 0)
				}
				return copyOut{port: hop.Out, h: out}, true
			}
		}
	}
	return copyOut{}, false
}

// labeled says whether a packet is a frame of MobilityFirst with a label.
func labeled(h *packet.Headers) bool { return h.EthType == frame.EtherType && h.VLANID >= firstLabel }

// ofNames is a frame of MobilityFirst, mostly one with the label of a path, at a switch on its way.
func (r traffic) ofNames() (network.PortRef, packet.Headers) {
	from, to := pick(r, r.w.parties[:]...), pick(r, r.w.parties[:]...)
	h := packet.Headers{Layers: packet.Ethernet, EthType: frame.EtherType, EthSrc: from.mac, EthDst: to.mac}
	if len(r.w.names) == 0 || r.IntN(4) == 0 {
		tag(&h, pick(r, append(someTags, 0)...))
		return from.at, h
	}
	p := pick(r, r.w.names...)
	hop := pick(r, p.hops...)
	h.EthSrc, h.EthDst = p.from.mac, p.to.mac
	tag(&h, p.forth)
	if r.IntN(2) == 0 {
		h.EthSrc, h.EthDst = p.to.mac, p.from.mac
		tag(&h, p.back)
		return network.PortRef{Switch: hop.Switch, Port: hop.Out}, h
	}
	return network.PortRef{Switch: hop.Switch, Port: hop.In}, h
}

// framesOf describes the frames of MobilityFirst between two parties.
func (w *world) framesOf(t *rapid.T) (description, connection) {
	party := rapid.IntRange(0, numParties-1)
	of := connection{from: party.Draw(t, "from"), to: party.Draw(t, "to")}
	for i, p := range w.parties {
		if len(w.names) > 0 && p == *w.names[0].from {
			of.from = i
		}
		if len(w.names) > 0 && p == *w.names[0].to {
			of.to = i
		}
	}
	return description{frames: true, mac: w.parties[of.to].mac}, of
}
