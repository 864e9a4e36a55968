package network

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// installedFlows holds the flows of default forwarding whose rules were written.
type installedFlows struct {
	mu    sync.Mutex
	flows map[forward.Key]*forward.Flow
}

// swap stores a flow, or removes it if f is nil, and returns the previous one.
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

// forwarding is default forwarding, the last handler of the chain.
type forwarding struct {
	cfg      *Config
	switches *registry
	links    *discovery.Discovery
	hosts    *hosts.Table
	anchors  *anchors
	repairs  *repairs
	// filter decides whether a packet may be forwarded, by the claims it makes about hosts.
	filter func(*PacketIn) Verdict

	view      *atomic.Pointer[forward.View]
	flows     *forward.Table
	writer    *ledger.FlowWriter
	hash      uint16 // of the owner of its rules
	installed installedFlows
	adopted   atomic.Bool // a switch had rules of default forwarding when it connected
}

// Name implements Handler.
func (*forwarding) Name() string { return "forwarding" }

// HandlePacketIn implements Handler.
func (w *forwarding) HandlePacketIn(p *PacketIn) Verdict {
	if p.Headers.EthDst != probeMAC && w.filter(p) == Continue {
		_ = w.forward(p, p.Switch) // drops are counted by the output queue
	}
	return Stop
}

// forwardHeld forwards a packet that a service has held. It may run on any goroutine.
func (w *forwarding) forwardHeld(p *PacketIn) error {
	if w.cfg.DisableForwarding {
		return nil
	}
	err := w.forward(p, nil)
	p.Switch.ch.out.flush()
	return err
}

// forward decides what to do with a packet and queues the output. reader is the switch on whose
// goroutine forward runs: all output is then flushed at the end of that switch's batch of input. If
// reader is nil, output for other switches is flushed at once.
func (w *forwarding) forward(p *PacketIn, reader *Switch) error {
	if actions, ok := w.anchors.forwardMoving(p); ok {
		if len(actions) == 0 {
			return nil
		}
		return p.Output(actions)
	}
	at := PortRef{Switch: p.Switch.dpid, Port: p.InPort}
	d := w.flows.Decide(w.view.Load(), at, &p.Headers)
	if d.Flow != nil {
		switch {
		case d.New:
			w.install(d.Flow, reader)
		case p.Reason != openflow.ReasonAction: // otherwise another rule has sent the packet to the controller
			w.renew(d.Flow, at, reader)
		}
	}
	if len(d.Out.Actions) == 0 {
		return nil
	}
	if d.Out.Data == nil && p.buffer == openflow.NoBuffer && len(d.Out.Actions) == 1 {
		return p.Switch.ch.queueOutput(d.Out.InPort, d.Out.Actions[0].Port(), p.Data)
	}
	m := openflow.PacketOut{BufferID: openflow.NoBuffer, InPort: d.Out.InPort, Actions: d.Out.Actions, Data: d.Out.Data}
	if m.Data == nil {
		m.Data = p.Data
		if p.buffer != openflow.NoBuffer {
			m.BufferID, m.Data = p.buffer, nil
		}
	}
	return p.Switch.ch.queuePacketOut(&m)
}

// install writes the rules of a flow, beginning at the far end, and deletes the rules of its
// previous path.
func (w *forwarding) install(f *forward.Flow, reader *Switch) {
	old := w.installed.swap(f.Key, f)
	for i := len(f.Path.Hops) - 1; i >= 0; i-- {
		w.writeHop(f, f.Path.Hops[i], reader)
	}
	if old == nil {
		return
	}
	for _, h := range old.Path.Hops {
		if !passes(f, h) {
			w.deleteHop(old.Key, h, reader)
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

// renew writes the rule of one hop again, because the packet shows that the switch does not have
// it, or not yet. The ledger bounds how often that is done for a sender of many packets.
func (w *forwarding) renew(f *forward.Flow, at PortRef, reader *Switch) {
	for _, h := range f.Path.Hops {
		if h.Switch == at.Switch && h.In == at.Port {
			w.writeHop(f, h, reader)
			return
		}
	}
}

// compact returns the rule of a flow at a hop, in compact form.
func (w *forwarding) compact(k forward.Key, h Hop) rule.Flow {
	f := rule.Flow{InPort: h.In, Src: k.Src, Dst: k.Dst, VLAN: k.VLAN}
	if w.cfg.IgnoreVLAN {
		f.VLAN = rule.AnyVLAN
	}
	return f
}

func (w *forwarding) writeHop(f *forward.Flow, h Hop, reader *Switch) {
	s := reader
	if s == nil || s.dpid != h.Switch {
		var ok bool
		if s, ok = w.switches.get(h.Switch); !ok {
			return
		}
	}
	out := h.Output()
	rf := w.compact(f.Key, h)
	b := s.ch.out.lockControl() // lock before the ledger changes, so that a deletion that follows at once is queued after the rule
	c, ok := s.flows.Put(rf, out, time.Now())
	if ok {
		b = w.writer.AppendAdd(b, s.ch.xid.Add(1), s.layout, c, rf, out)
	}
	s.ch.out.unlockControl(b)
	if !ok {
		return // the rule has just been sent, or the switch's table is full and its packets are forwarded one by one
	}
	s.ch.flowMods.Add(1)
	flushOrDefer(s, reader)
}

func (w *forwarding) deleteHop(k forward.Key, h Hop, reader *Switch) {
	if s, ok := w.switches.get(h.Switch); ok {
		w.deleteFlow(s, w.compact(k, h), reader)
	}
}

func (w *forwarding) deleteFlow(s *Switch, f rule.Flow, reader *Switch) {
	b := s.ch.out.lockControl()
	r, ok := s.flows.Delete(f)
	if ok {
		b = w.writer.AppendDelete(b, s.ch.xid.Add(1), s.layout, r.Cookie, f)
	}
	s.ch.out.unlockControl(b)
	if !ok {
		return
	}
	s.ch.flowMods.Add(1)
	flushOrDefer(s, reader)
}

// flushOrDefer makes the output of s be written: at the end of the reader's batch, or now if there
// is no reader.
func flushOrDefer(s, reader *Switch) {
	if reader == nil {
		s.ch.out.flush()
		return
	}
	reader.flushLater(s.ch.out)
}

// flowGone handles a rule that a switch has removed.
func (w *forwarding) flowGone(s *Switch, r *openflow.FlowRemoved) {
	f, ok := rule.FlowOf(r.Match)
	if !ok {
		return
	}
	if have, ok := s.flows.Get(f); !ok || have.Cookie != rule.Cookie(r.Cookie) {
		return
	}
	w.forgetFlow(s, f)
	if r.Reason == openflow.RemovedDelete { // by another program: our own deletions have left s.flows before
		s.comparer.deletedFlows.Add(1)
		s.comparer.wanted.set()
	}
}

// forgetFlow removes a flow whose rule the switch does not have any more, so that its next packet
// is decided anew.
func (w *forwarding) forgetFlow(s *Switch, f rule.Flow) {
	s.flows.Delete(f)
	w.decideAnew(f)
}

// decideAnew makes the next packet of a flow be decided anew.
func (w *forwarding) decideAnew(f rule.Flow) {
	k := forward.Key{Src: f.Src, Dst: f.Dst, VLAN: f.VLAN}
	if f.VLAN == rule.AnyVLAN {
		k.VLAN = 0
	}
	w.installed.swap(k, nil)
	w.flows.Delete(k)
}

// refusedFlows holds the flows of default forwarding whose rules a switch has refused.
type refusedFlows struct {
	owner uint16 // hash of default forwarding's owner
	limit int

	mu      sync.Mutex
	cookies map[rule.Cookie]struct{}
}

// note records a refused rule. m is the part of the refused message that the switch returns: at
// least its first 64 bytes, which contain the cookie but not the match.
func (r *refusedFlows) note(m []byte) {
	const cookie, command = 8, 25
	if len(m) <= command || openflow.MsgType(m[1]) != openflow.TypeFlowMod || m[command] != openflow.FlowAdd {
		return
	}
	c := rule.Cookie(binary.BigEndian.Uint64(m[cookie:]))
	if !c.Ours() || c.Owner() != r.owner {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cookies == nil {
		r.cookies = map[rule.Cookie]struct{}{}
	}
	if len(r.cookies) < r.limit {
		r.cookies[c] = struct{}{}
	}
}

// take removes and returns the recorded cookies.
func (r *refusedFlows) take() map[rule.Cookie]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused := r.cookies
	r.cookies = nil
	return refused
}

// forgetRefused removes the flows whose rules a switch has refused. Otherwise they would count
// towards the switch's limit of rules for ever.
func (w *forwarding) forgetRefused(s *Switch) {
	refused := s.refusals.take()
	if len(refused) == 0 {
		return
	}
	for _, f := range s.flows.Select(func(_ rule.Flow, r ledger.FlowRule) bool {
		_, found := refused[r.Cookie]
		return found
	}) {
		w.forgetFlow(s, f)
	}
}
