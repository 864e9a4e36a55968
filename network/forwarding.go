package network

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// installedFlows are the flows of default forwarding whose rules were written.
type installedFlows struct {
	mu    sync.Mutex
	flows map[forward.Key]*forward.Flow
}

// swap notes a flow, nil for none, and returns the one that was there.
func (i *installedFlows) swap(k forward.Key, f *forward.Flow) *forward.Flow {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.flows[k]
	if f == nil {
		delete(i.flows, k)
	} else {
		i.flows[k] = f
	}
	return old
}

// forwardHandler is default forwarding, the end of the chain.
type forwardHandler struct{ n *Network }

func (forwardHandler) Name() string { return "forwarding" }

func (h forwardHandler) HandlePacketIn(p *PacketIn) Verdict {
	if p.Headers.EthDst != probeMAC && h.n.judge(p) == Continue {
		_ = h.n.forward(p, p.Switch) // a drop is counted where it happens
	}
	return Stop
}

// forwardHeld forwards a packet that a service has held, on any goroutine.
func (n *Network) forwardHeld(p *PacketIn) error {
	if n.cfg.DisableForwarding {
		return nil
	}
	err := n.forward(p, nil)
	p.Switch.out.flush()
	return err
}

// forward decides upon a packet and queues what follows from it. reader is the
// switch on whose reader goroutine this runs: its batch's end writes everything.
// Without a reader, what concerns other switches is written at once.
func (n *Network) forward(p *PacketIn, reader *Switch) error {
	if actions, led := n.led(p); led {
		if len(actions) == 0 {
			return nil
		}
		return p.Output(actions)
	}
	at := PortRef{Switch: p.Switch.dpid, Port: p.InPort}
	d := n.flows.Decide(n.view.Load(), at, &p.Headers)
	if d.Flow != nil {
		switch {
		case d.New:
			n.install(d.Flow, reader)
		case p.Reason != openflow.ReasonAction: // else another rule has sent it up
			n.renew(d.Flow, at, reader)
		}
	}
	if len(d.Out.Actions) == 0 {
		return nil
	}
	if d.Out.Data == nil && p.buffer == openflow.NoBuffer && len(d.Out.Actions) == 1 {
		return p.Switch.queueOutput(d.Out.InPort, d.Out.Actions[0].Port(), p.Data)
	}
	m := openflow.PacketOut{BufferID: openflow.NoBuffer, InPort: d.Out.InPort, Actions: d.Out.Actions, Data: d.Out.Data}
	if m.Data == nil {
		m.Data = p.Data
		if p.buffer != openflow.NoBuffer {
			m.BufferID, m.Data = p.buffer, nil
		}
	}
	return p.Switch.queuePacketOut(&m)
}

// install writes the rules of a flow, those of the far end first, and deletes
// those of the way it went before.
func (n *Network) install(f *forward.Flow, reader *Switch) {
	old := n.installed.swap(f.Key, f)
	for i := len(f.Path.Hops) - 1; i >= 0; i-- {
		n.writeHop(f, f.Path.Hops[i], reader)
	}
	if old == nil {
		return
	}
	for _, h := range old.Path.Hops {
		if !passes(f, h) {
			n.deleteHop(old.Key, h, reader)
		}
	}
}

// passes reports whether the flow has a rule where the hop h has one.
func passes(f *forward.Flow, h Hop) bool {
	for _, o := range f.Path.Hops {
		if o.Switch == h.Switch && o.In == h.In {
			return true
		}
	}
	return false
}

// renew writes the rule of one hop again: the packet shows that the switch does
// not have it, or not yet. Whoever sends one packet after the other has it written
// only now and then.
func (n *Network) renew(f *forward.Flow, at PortRef, reader *Switch) {
	for _, h := range f.Path.Hops {
		if h.Switch == at.Switch && h.In == at.Port {
			n.writeHop(f, h, reader)
			return
		}
	}
}

func (n *Network) compact(k forward.Key, h Hop) rule.Flow {
	f := rule.Flow{InPort: h.In, Src: k.Src, Dst: k.Dst, VLAN: k.VLAN}
	if n.cfg.IgnoreVLAN {
		f.VLAN = rule.AnyVLAN
	}
	return f
}

func (n *Network) writeHop(f *forward.Flow, h Hop, reader *Switch) {
	s := reader
	if s == nil || s.dpid != h.Switch {
		var ok bool
		if s, ok = n.Switch(h.Switch); !ok {
			return
		}
	}
	out := h.Output()
	rf := n.compact(f.Key, h)
	b := s.out.lockControl() // before the ledger changes: who deletes it at once must come after
	c, ok := s.flows.Put(rf, out, time.Now())
	if ok {
		b = n.writer.AppendAdd(b, s.xid.Add(1), s.layout, c, rf, out)
	}
	s.out.unlockControl(b)
	if !ok {
		return // it is on its way, or the switch's table is full and packets go one by one
	}
	s.counters.flowMods.Add(1)
	written(s, reader)
}

func (n *Network) deleteHop(k forward.Key, h Hop, reader *Switch) {
	if s, ok := n.Switch(h.Switch); ok {
		n.deleteFlow(s, n.compact(k, h), reader)
	}
}

func (n *Network) deleteFlow(s *Switch, f rule.Flow, reader *Switch) {
	b := s.out.lockControl()
	r, ok := s.flows.Delete(f)
	if ok {
		b = n.writer.AppendDelete(b, s.xid.Add(1), s.layout, r.Cookie, f)
	}
	s.out.unlockControl(b)
	if !ok {
		return
	}
	s.counters.flowMods.Add(1)
	written(s, reader)
}

// written has what was queued for s written: at the end of the reader's batch,
// or now.
func written(s, reader *Switch) {
	if reader == nil {
		s.out.flush()
		return
	}
	reader.touch(s.out)
}

// flowGone takes note of a rule that a switch has removed.
func (n *Network) flowGone(s *Switch, r *openflow.FlowRemoved) {
	f, ok := rule.FlowOf(r.Match)
	if !ok {
		return
	}
	if have, ok := s.flows.Get(f); !ok || have.Cookie != rule.Cookie(r.Cookie) {
		return
	}
	n.forgetFlow(s, f)
}

// forgetFlow takes out a flow of which the switch has no rule: its next packet
// comes up.
func (n *Network) forgetFlow(s *Switch, f rule.Flow) {
	s.flows.Delete(f)
	k := forward.Key{Src: f.Src, Dst: f.Dst, VLAN: f.VLAN}
	if f.VLAN == rule.AnyVLAN {
		k.VLAN = 0
	}
	n.installed.swap(k, nil)
	n.flows.Delete(k)
}

// noteRefused notes whose rule a switch has refused: it gives back at least the
// first 64 bytes of the message, in which the cookie stands, but not the match.
func (s *Switch) noteRefused(m []byte) {
	const cookie, command = 8, 25
	if len(m) <= command || openflow.MsgType(m[1]) != openflow.TypeFlowMod || m[command] != openflow.FlowAdd {
		return
	}
	c := rule.Cookie(binary.BigEndian.Uint64(m[cookie:]))
	if !c.Ours() || c.Owner() != s.n.forwardHash {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusals == nil {
		s.refusals = map[rule.Cookie]struct{}{}
	}
	if len(s.refusals) < s.n.cfg.ForwardRules {
		s.refusals[c] = struct{}{}
	}
}

// forgetRefused forgets the flows whose rules the switch has refused, or they
// would keep the place of others for ever.
func (s *Switch) forgetRefused() {
	s.mu.Lock()
	refused := s.refusals
	s.refusals = nil
	s.mu.Unlock()
	if len(refused) == 0 {
		return
	}
	for _, f := range s.flows.Select(func(_ rule.Flow, r ledger.FlowRule) bool {
		_, no := refused[r.Cookie]
		return no
	}) {
		s.n.forgetFlow(s, f)
	}
}
