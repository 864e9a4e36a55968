package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// receive handles received frames until the interface fails or ctx ends.
func (l *link) receive(ctx context.Context, i *Interface) error {
	var buffers [batch][]byte
	for {
		frames, err := i.Receive(ctx)
		if err != nil {
			return err
		}
		l.handle(frames)
		if err := l.answer(i, &buffers); err != nil {
			return err
		}
	}
}

// handle handles frames. It verifies signatures last, and without holding the host's lock.
func (l *link) handle(frames []rawlink.Frame) {
	parsed, signed := make([]frame.Frame, len(frames)), false
	for i := range frames {
		parsed[i], _ = frame.Parse(frames[i].Payload) // malformed frames are ignored
		switch parsed[i].(type) {
		case *frame.PathRequest, *frame.PathGrant:
			signed = true
		}
	}
	now := time.Now()
	l.host.mu.Lock()
	l.answering = !signed // otherwise answers to others would wait for the signature checks
	for i, f := range parsed {
		l.host.handle(place{l, frames[i].From}, f, frames[i].Group, now)
	}
	l.host.mu.Unlock()
	for i, f := range parsed {
		switch f := f.(type) {
		case *frame.PathRequest:
			l.host.handleRequest(place{l, frames[i].From}, f, now)
		case *frame.PathGrant:
			l.host.handleGrant(place{l, frames[i].From}, f, now)
		}
	}
}

// handle handles a frame without a signature, which was sent to a group address or to this host.
func (h *Host) handle(at place, f frame.Frame, toGroup bool, now time.Time) {
	switch f := f.(type) {
	case *frame.StreamData:
		h.handleData(at, f, now)
	case *frame.StreamAck:
		if o := h.bySession[f.Stream.Session()]; o != nil && o.sender.Stream == f.Stream && o.isReceiverAt(at) {
			o.handleAck(f, at, now)
		}
	case *frame.StreamQuery:
		if in := h.incoming[f.Stream.Session()]; in == nil || in.receiver.Stream != f.Stream {
			h.refuse(at, h.neighbours.tagTo(at), f.Stream, frame.ResetUnknown, now)
		} else if in.acceptFrom(at) {
			in.link.acknowledge(in)
		}
	case *frame.StreamReset:
		h.handleReset(at, f, now)
	case *frame.PathConfirm:
		h.handleConfirm(at, f, now)
	case *frame.Hello:
		if !at.link.isFar() { // far hosts receive no broadcasts
			h.handleHello(at, f, !toGroup, now)
		}
	}
}

// isReceiverAt reports whether the receiver of a stream is at a place.
func (o *outgoing) isReceiverAt(at place) bool {
	return o.pathTo(at) != nil || o.host.neighbours.find(o.to, at) != nil
}

// handleReset ends a stream in either direction, or handles the answer to a ping or a probe.
func (h *Host) handleReset(at place, f *frame.StreamReset, now time.Time) {
	answered, o, in := h.pings[f.Stream], h.bySession[f.Stream.Session()], h.incoming[f.Stream.Session()]
	switch {
	case answered != nil:
		delete(h.pings, f.Stream)
		close(answered)
	case o != nil && o.path.probeSize(at, f.Stream) > 0:
		o.raiseMTU(o.path.probeSize(at, f.Stream), now)
	case o != nil && o.sender.Stream == f.Stream && o.sender.Started() && o.isReceiverAt(at):
		o.handleReset(f, now)
	case in != nil && in.receiver.Stream == f.Stream && in.acceptFrom(at):
		in.close()
		h.resumeWaiting()
	}
}

// A hello does not cause another request for the same path within minRequestInterval or, if the
// hello is newer than the last answer, within minNewsInterval.
const minRequestInterval, minNewsInterval = time.Second, 20 * time.Millisecond

// handleHello handles an unsolicited hello. It does not trust the hello: if the hello has news of a
// name to which there is a stream, the host requests a path there. An announced hello was sent to
// this host alone: the controller does so when the name has moved, even if it has the Ethernet
// address that it had before.
func (h *Host) handleHello(at place, hello *frame.Hello, announced bool, now time.Time) {
	to := record.NameOf(hello.Key[:])
	for _, e := range h.names {
		if m := h.multicasts[streamKey{from: e.Name, to: to}]; m != nil {
			m.handleHello(at, place{at.link, hello.MAC}, announced, now)
		}
		o := h.outgoing[streamKey{from: e.Name, to: to}]
		if o == nil || !o.hasWork() && o.path == nil {
			continue
		}
		interval, news := minRequestInterval, hello.Number > o.answeredNumber
		moved := news && announced
		switch {
		case news:
			interval = minNewsInterval
		case o.path == nil:
			interval = initialRetry
		}
		if now.Sub(o.askedAt) < interval {
			continue
		}
		there := place{at.link, hello.MAC}
		if p := o.pathTo(there); p != nil && p.silences == 0 && !moved || o.multihomed && o.path != nil && now.Sub(o.askedAt) < lease/2 && h.neighbours.find(to, there) != nil {
			continue
		}
		if h.allowAnswer(at, now) && h.limits.induced.AllowN(now, 1) {
			if o.requestPath(now); moved {
				o.moved = hello.Number
			}
		}
	}
}

// challenge returns the number that an answer to a request has to contain. It depends on the
// requester's key, so the answer is of no use to others.
func challenge(q *frame.PathRequest) uint64 {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, q.ID), q.Hello.Key[:]...))
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}

// handleRequest answers a path request for one of the host's names.
func (h *Host) handleRequest(at place, q *frame.PathRequest, now time.Time) {
	h.mu.Lock()
	wanted := h.names[q.Destination] != nil && q.Hello.Challenge == 0 && at.mac == openflow.MAC(q.Hello.MAC) && !group(at.mac) && h.allowSignature(at, false, now)
	h.mu.Unlock()
	if !wanted {
		return
	}
	who, err := record.VerifyHello(&q.Hello)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.names[q.Destination]
	if e == nil || !at.link.up {
		return
	}
	o := h.outgoing[streamKey{from: e.Name, to: who}]
	if at.link.isFar() {
		q.Back, q.Forth = 0, 0 // far hosts use no labels
	}
	if q.Forth != 0 && q.Back == 0 { // the requester uses a path that the network has set up before
		q.Back = h.neighbours.tagTo(at)
	}
	back := q.Back
	if n := h.neighbours.byName[who]; n != nil && n.lastRequest == q.ID && q.Service&frame.Multicast != 0 {
		back = 0 // another host has answered: if this host's answer was lost, the label may be the cause
	}
	if n := h.neighbours.byName[who]; n != nil && n.distrustsLabels(q, now) || o != nil && now.Before(o.noLabelsUntil) {
		q.Back, q.Forth = 0, 0
	}
	n, old := h.neighbours.learn(who, &q.Hello, at, q.Back, now)
	if o != nil && o.hasWork() && o.request != 0 && now.Sub(o.askedAt) >= minNewsInterval && h.limits.induced.AllowN(now, 1) {
		o.requestPath(now) // the requester can be reached again
	}
	if old && !at.link.isFar() && h.limits.induced.AllowN(now, 1) {
		// A newer hello of the name is known. It may have come from another host with the name, or
		// the clock of the requesting host was set back. The answer to a request that this host
		// sends now is certainly new.
		if o, err := h.outgoingTo(e, who); err == nil && now.Sub(o.askedAt) >= minRequestInterval {
			o.requestPath(now)
		}
	}
	if n == nil {
		return
	}
	hello := record.SignHello(e.key, e.number, at.link.MAC, challenge(q))
	g := frame.PathGrant{Label: q.Forth, Lease: q.Lease, Instance: h.instance, Hello: hello}
	if at.link.isFar() {
		g.Token = h.token(at, who, q.Destination, now)
	}
	if g.Label == 0 || g.Lease == 0 {
		g.Lease = uint32(lease.Milliseconds())
	}
	at.link.sendControl(at.mac, min(q.Back, back), &g)
}

// group reports whether an Ethernet address is a group address.
func group(mac openflow.MAC) bool { return mac[0]&1 != 0 }

// handleGrant handles an answer to a path request. A path without a label leads to the place that
// the answer comes from.
func (h *Host) handleGrant(at place, g *frame.PathGrant, now time.Time) {
	if at.link.isFar() {
		g.Label = 0 // far hosts use no labels, and the path leads to where the answer comes from
	}
	h.mu.Lock()
	_, ok := requestedName(h, g.Hello.Challenge)
	wanted := ok && !group(g.Hello.MAC) && (g.Label != 0 || at.mac == openflow.MAC(g.Hello.MAC)) && h.allowSignature(at, true, now)
	h.mu.Unlock()
	if !wanted {
		return
	}
	who, err := record.VerifyHello(&g.Hello)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if to, ok := requestedName(h, g.Hello.Challenge); !ok || who != to || !at.link.up {
		return
	}
	there := place{at.link, g.Hello.MAC}
	o, m := h.requests[g.Hello.Challenge], h.searches[g.Hello.Challenge]
	if m != nil {
		o = m.member(g.Instance, there)
	}
	until := now.Add(min(g.LeaseTime(), maxLease))
	if o != nil && now.Before(o.noLabelsUntil) {
		g.Label, until = 0, now.Add(lease)
	}
	h.neighbours.learn(who, &g.Hello, there, g.Label, now)
	if g.Token != 0 && m == nil {
		at.link.sendControl(there.mac, 0, &frame.PathConfirm{Source: o.from, Destination: o.to, Token: g.Token, Stream: o.sender.Stream})
	}
	p := &path{foundAt: now, place: there, tag: g.Label, leasedUntil: until, expires: until, number: g.Hello.Number, instance: g.Instance}
	switch {
	case m != nil:
		m.handleGrant(o, p, now)
	case o.multicast != nil && there != o.lastPlace:
		// another member has received the request that was meant for this one
	case g.Hello.Challenge == o.request:
		o.handleGrant(p, now)
	default:
		o.addPath(p, now)
	}
}

// requestedName returns the name whose request has this challenge, and reports whether there is
// one.
func requestedName(h *Host, challenge uint64) (to frame.GUID, ok bool) {
	if o := h.requests[challenge]; o != nil {
		return o.to, true
	}
	if m := h.searches[challenge]; m != nil {
		return m.to, true
	}
	return to, false
}

// maxLease is the longest lease of a path that the host accepts.
const maxLease = 5 * time.Minute
