package network

import (
	"bytes"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// packetIn takes a packet through the chain. Nothing here allocates.
func (s *Switch) packetIn(m []byte) {
	if !s.up.Load() {
		s.counters.packetInsDropped.Add(1)
		return
	}
	if err := s.in.Decode(m); err != nil {
		s.malformed(err)
		return
	}
	p := &s.pkt
	p.Switch, p.InPort, p.Reason, p.Table = s, s.in.InPort, s.in.Reason, s.in.Table
	p.Cookie, p.Data, p.buffer = s.in.Cookie, s.in.Data, s.in.BufferID
	_ = p.Headers.Parse(p.Data) // what could be read is what counts
	s.counters.packetIns[kindOf(&p.Headers)].Add(1)
	if !p.Headers.Has(packet.Ethernet) {
		return
	}
	for _, h := range s.n.chain {
		if h.HandlePacketIn(p) == Stop {
			return
		}
	}
}

// flowRemoved takes note of a rule that the switch has removed.
func (s *Switch) flowRemoved(m []byte) {
	var r openflow.FlowRemoved
	if err := r.Decode(m); err != nil {
		s.malformed(err)
		return
	}
	switch c := rule.Cookie(r.Cookie); {
	case !c.Ours():
	case c.Owner() == s.n.forwarding.hash:
		s.n.forwarding.flowGone(s, &r)
	default:
		s.n.owners.removed(s, &r, s.pkt.At)
	}
}

// portStatus keeps the list of ports and tells the network what changed.
func (s *Switch) portStatus(m []byte) {
	var st openflow.PortStatus
	if err := st.Decode(bytes.Clone(m)); err != nil {
		s.malformed(err)
		return
	}
	p, deleted := st.Port, st.Reason == openflow.PortDeleted
	old, known, room := s.ports.take(p, deleted)
	if !room {
		s.limiter.Warn(s.n.cfg.Log, "port left out: the switch has as many as openflow.max_ports allows", "switch", s.dpid, "port", p.Number, "limit", s.n.cfg.MaxPorts)
		return
	}
	wasUp, isUp := known && old.Up(), !deleted && p.Up()
	if !s.up.Load() || p.Number > openflow.PortMax {
		return
	}
	at := PortRef{Switch: s.dpid, Port: p.Number}
	switch {
	case isUp && (!wasUp || old.MAC != p.MAC):
		s.n.news.portUp(at, p)
	case wasUp && !isUp:
		s.n.news.portDown(at)
	}
}
