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

// receive takes what comes until the interface fails or ctx ends.
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

// handle takes frames. Signatures are looked at without the host's lock, and last.
func (l *link) handle(frames []rawlink.Frame) {
	parsed, signed := make([]frame.Frame, len(frames)), false
	for i := range frames {
		parsed[i], _ = frame.Parse(frames[i].Payload) // what is no frame is nobody's
		switch parsed[i].(type) {
		case *frame.PathRequest, *frame.PathGrant:
			signed = true
		}
	}
	now := time.Now()
	l.host.mu.Lock()
	l.answering = !signed // or others would wait for signatures to be looked at
	for i, f := range parsed {
		l.host.handle(place{l, frames[i].From}, f, now)
	}
	l.host.mu.Unlock()
	for i, f := range parsed {
		switch f := f.(type) {
		case *frame.PathRequest:
			l.host.answer(place{l, frames[i].From}, f, now)
		case *frame.PathGrant:
			l.host.grant(place{l, frames[i].From}, f, now)
		}
	}
}

// handle takes a frame without a signature.
func (h *Host) handle(at place, f frame.Frame, now time.Time) {
	switch f := f.(type) {
	case *frame.StreamData:
		h.data(at, f, now)
	case *frame.StreamAck:
		if o := h.bySession[f.Stream.Session()]; o != nil && o.sender.Stream == f.Stream && o.reaches(at) {
			o.acknowledged(f, at, now)
		}
	case *frame.StreamQuery:
		if in := h.in[f.Stream.Session()]; in == nil || in.receiver.Stream != f.Stream {
			h.refuse(at, h.neighbours.tagTo(at, now), f.Stream, frame.ResetUnknown, now)
		} else if in.from(at) {
			in.link.acknowledge(in)
		}
	case *frame.StreamReset:
		h.reset(at, f, now)
	case *frame.PathConfirm:
		h.confirmed(at, f, now)
	case *frame.Hello:
		if !at.link.isFar() { // where nobody hears broadcasts
			h.heard(at, f, now)
		}
	}
}

// reaches says whether the receiver of a stream is at a place.
func (o *outgoing) reaches(at place) bool {
	return o.wayTo(at) != nil || o.host.neighbours.find(o.to, at) != nil
}

// reset ends a stream in either direction, or is the answer to a ping or a probe.
func (h *Host) reset(at place, f *frame.StreamReset, now time.Time) {
	answered, o, in := h.pings[f.Stream], h.bySession[f.Stream.Session()], h.in[f.Stream.Session()]
	switch {
	case answered != nil:
		delete(h.pings, f.Stream)
		close(answered)
	case o != nil && o.path.answers(at, f.Stream) > 0:
		o.arrives(o.path.answers(at, f.Stream), now)
	case o != nil && o.sender.Stream == f.Stream && o.sender.Started() && o.reaches(at):
		o.reset(f, now)
	case in != nil && in.receiver.Stream == f.Stream && in.from(at):
		in.leave()
		h.feed()
	}
}

// askedLately is for how long a way that was asked for is not asked for again because of a hello.
const askedLately = time.Second

// heard takes a hello that nobody has asked for. It is believed in nothing: if it says something new
// of a name to which there is a stream, the way there is asked for.
func (h *Host) heard(at place, hello *frame.Hello, now time.Time) {
	to := record.NameOf(hello.Key[:])
	for _, e := range h.names {
		if m := h.multicasts[way{from: e.Name, to: to}]; m != nil {
			m.heard(at, place{at.link, hello.MAC}, now)
		}
		o := h.out[way{from: e.Name, to: to}]
		if o == nil || !o.wanted() || o.path != nil && now.Sub(o.asked) < askedLately || now.Sub(o.asked) < firstAsk {
			continue
		}
		there := place{at.link, hello.MAC}
		if p := o.wayTo(there); p != nil && p.tag == 0 || o.multihomed && o.path != nil && now.Sub(o.asked) < lease/2 && h.neighbours.find(to, there) != nil {
			continue
		}
		if h.mayAnswer(at, now) && h.limits.induced.AllowN(now, 1) {
			o.ask(now)
		}
	}
}

// challenge is what an answer to a request has to answer to: it is good for nobody else.
func challenge(q *frame.PathRequest) uint64 {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, q.ID), q.Hello.Key[:]...))
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}

// answer says that a name is here, to whoever asks.
func (h *Host) answer(at place, q *frame.PathRequest, now time.Time) {
	h.mu.Lock()
	asked := h.names[q.Destination] != nil && q.Hello.Challenge == 0 && at.mac == openflow.MAC(q.Hello.MAC) && !group(at.mac) && h.mayVerify(at, false, now)
	h.mu.Unlock()
	if !asked {
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
	o := h.out[way{from: e.Name, to: who}]
	if at.link.isFar() {
		q.Back, q.Forth = 0, 0 // there are no labels
	}
	back := q.Back
	if n := h.neighbours.named[who]; n != nil && n.asked == q.ID && q.Service&frame.Multicast != 0 {
		back = 0 // others have answered: if this one's answer was lost, it may be because of its label
	}
	if n := h.neighbours.named[who]; n != nil && n.distrusts(q, now) || o != nil && now.Before(o.plain) {
		q.Back, q.Forth = 0, 0
	}
	n, old := h.neighbours.learn(who, &q.Hello, at, label{q.Back, now.Add(min(q.LeaseTime(), maxLease))}, now)
	if old && !at.link.isFar() && h.limits.induced.AllowN(now, 1) {
		// It has said something newer: it may be another's hello of earlier, or the clock of its
		// host was set back. What it answers now is new.
		if o, err := h.outgoingTo(e, who); err == nil && now.Sub(o.asked) >= askedLately {
			o.ask(now)
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
	if g.Label == 0 {
		g.Lease = uint32(lease.Milliseconds())
	}
	at.link.tell(at.mac, min(q.Back, back), &g)
}

// group says whether an Ethernet address is that of several.
func group(mac openflow.MAC) bool { return mac[0]&1 != 0 }

// grant takes the answer to a question for a way. A way without a label leads to where the answer
// comes from.
func (h *Host) grant(at place, g *frame.PathGrant, now time.Time) {
	if at.link.isFar() {
		g.Label = 0 // there are none, and the way leads to where the answer comes from
	}
	h.mu.Lock()
	_, is := askedFor(h, g.Hello.Challenge)
	asked := is && !group(g.Hello.MAC) && (g.Label != 0 || at.mac == openflow.MAC(g.Hello.MAC)) && h.mayVerify(at, true, now)
	h.mu.Unlock()
	if !asked {
		return
	}
	who, err := record.VerifyHello(&g.Hello)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if to, is := askedFor(h, g.Hello.Challenge); !is || who != to || !at.link.up {
		return
	}
	there := place{at.link, g.Hello.MAC}
	o, m := h.requests[g.Hello.Challenge], h.searches[g.Hello.Challenge]
	if m != nil {
		o = m.member(g.Instance, there)
	}
	until := now.Add(min(g.LeaseTime(), maxLease))
	if o != nil && now.Before(o.plain) {
		g.Label, until = 0, now.Add(lease)
	}
	h.neighbours.learn(who, &g.Hello, there, label{g.Label, until}, now)
	if g.Token != 0 && m == nil {
		at.link.tell(there.mac, 0, &frame.PathConfirm{Source: o.from, Destination: o.to, Token: g.Token, Stream: o.sender.Stream})
	}
	p := &path{found: now, place: there, tag: g.Label, until: until, number: g.Hello.Number, instance: g.Instance}
	switch {
	case m != nil:
		m.granted(o, p, now)
	case o.of != nil && there != o.last:
		// another member has heard what was asked of this one
	case g.Hello.Challenge == o.request:
		o.granted(p, now)
	default:
		o.joined(p, now)
	}
}

// askedFor is the name for which was asked what an answer answers to.
func askedFor(h *Host, challenge uint64) (to frame.GUID, is bool) {
	if o := h.requests[challenge]; o != nil {
		return o.to, true
	}
	if m := h.searches[challenge]; m != nil {
		return m.to, true
	}
	return to, false
}

// maxLease is how long a way is believed to be there at most.
const maxLease = 5 * time.Minute
