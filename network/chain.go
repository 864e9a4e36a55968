package network

import (
	"bytes"

	"github.com/sluice-net/sluice/network/ledger"
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
	s.counters.packetIns.Add(1)
	p := &s.pkt
	p.Switch, p.InPort, p.Reason, p.Table = s, s.in.InPort, s.in.Reason, s.in.Table
	p.Cookie, p.Data, p.buffer = s.in.Cookie, s.in.Data, s.in.BufferID
	_ = p.Headers.Parse(p.Data) // what could be read is what counts
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
	c := rule.Cookie(r.Cookie)
	if !c.Ours() {
		return
	}
	if c.Owner() == s.n.forwardHash {
		s.n.flowGone(s, &r)
		return
	}
	timedOut := r.Reason == openflow.RemovedIdle || r.Reason == openflow.RemovedHard
	at := rule.Slot{Table: r.Table, Priority: r.Priority, Match: r.Match}
	s.n.ruleRemoved(s, at, &r, timedOut)
}

func (n *Network) ruleRemoved(s *Switch, at rule.Slot, r *openflow.FlowRemoved, timedOut bool) {
	led, in, outcome := n.ledger.Removed(s.dpid, at, rule.Cookie(r.Cookie), timedOut)
	switch outcome {
	case ledger.RemovalForeign:
		s.limiter.Warn(n.log, "a rule was deleted by somebody else and is written again", "switch", s.dpid, "owner", in.Owner, "key", in.Name, "match", in.Match)
		if op, ok := n.ledger.Rewrite(s.dpid, at); ok {
			if _, err := s.sendBatch([]openflow.Message{op.Message}); err != nil {
				s.limiter.Warn(n.log, "writing a rule again", "switch", s.dpid, "error", err)
			}
		}
	case ledger.RemovalFinal:
		n.mu.Lock()
		o := n.byHash[led.Hash]
		n.mu.Unlock()
		if o == nil || o.opts.OnRemoved == nil || !in.NotifyRemoved {
			return
		}
		in.Packets, in.Bytes, in.CountersAt = r.Packets, r.Bytes, s.pkt.At
		o.opts.OnRemoved(Removed{Installed: in, Reason: r.Reason, Duration: r.Duration.Duration()})
	}
}

// portStatus keeps the list of ports and tells the network what changed.
func (s *Switch) portStatus(m []byte) {
	var st openflow.PortStatus
	if err := st.Decode(bytes.Clone(m)); err != nil {
		s.malformed(err)
		return
	}
	p := st.Port
	s.mu.Lock()
	old, known := s.ports[p.Number]
	wasUp := known && old.Up()
	isUp := st.Reason != openflow.PortDeleted && p.Up()
	switch {
	case st.Reason == openflow.PortDeleted:
		delete(s.ports, p.Number)
	case known || len(s.ports) < s.n.cfg.MaxPorts:
		s.ports[p.Number] = p
	default:
		s.mu.Unlock()
		s.limiter.Warn(s.n.log, "port left out: the switch has as many as openflow.max_ports allows", "switch", s.dpid, "port", p.Number, "limit", s.n.cfg.MaxPorts)
		return
	}
	s.mu.Unlock()
	if !s.up.Load() || p.Number > openflow.PortMax {
		return
	}
	at := PortRef{Switch: s.dpid, Port: p.Number}
	switch {
	case isUp && (!wasUp || old.MAC != p.MAC):
		s.n.portUp(at, p)
	case wasUp && !isUp:
		s.n.portDown(at)
	}
}
