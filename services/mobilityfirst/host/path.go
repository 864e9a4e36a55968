package host

import (
	"crypto/ed25519"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/stream"
	"github.com/sluice-net/sluice/services/mobilityfirst/udplink"
)

// path is how frames go to a name.
type path struct {
	found  time.Time
	heard  bool // the receiver has acknowledged something since
	silent int  // how often in a row the receiver was
	place
	tag    uint16 // of the way that the network has made, zero for none
	until  time.Time
	number uint64 // of the hello by which the name's host has answered
	// instance tells that host apart from others that have the name.
	instance uint64
	// mtu is how many bytes frames have at most that are known to arrive; zero until the way is taken.
	mtu    int
	probes []probe // what is asked of larger ones

	stream  *outgoing
	carries *stream.Path
	active  bool // it stands in its link's list
}

const (
	// lease is how long a way is there that the name's host has answered for by itself.
	lease = 30 * time.Second
	// askAgain is after how long such a way is asked for again: the network may make one by then.
	askAgain = time.Minute
	// distrust is for how long labels are not believed in to a name by one of which nothing has arrived.
	distrust = 10 * time.Minute
)

// renew is when a way is to be asked for again.
func (p *path) renew() time.Time {
	if p.tag == 0 {
		return p.found.Add(askAgain)
	}
	return p.until.Add(-lease / 2)
}

// ask asks for a way to the name, on all links.
func (o *outgoing) ask(now time.Time) {
	h := o.host
	o.rested = nil
	if o.request == 0 {
		delete(h.requests, o.before)
		o.before = 0
		o.id, o.request = o.endpoint.draw()
		h.requests[o.request] = o
	}
	if o.endpoint.isClosed() {
		o.endpoint.renew(now) // nobody else does
	}
	switch {
	case o.of != nil:
		o.of.miss(o, now)
	case h.limits.asks.AllowN(now, 1):
		o.asked = now
		tellAll(h, func(l *link) frame.Frame { return o.asking(l) })
		if p := o.path; p != nil && p.link.isFar() {
			o.askAt([]netip.AddrPort{udplink.Addr(p.mac)})
		}
		if o.asks >= lookAfter || !h.near() {
			o.look()
		}
	}
	o.nextAsk = now.Add(min(firstAsk<<min(o.asks, 10), lastAsk))
	o.asks++
	o.schedule(now)
}

// draw draws the number of a request, and says what its answers answer to.
func (e *Endpoint) draw() (id, answer uint64) {
	for {
		q := frame.PathRequest{ID: rand.Uint64()}
		copy(q.Hello.Key[:], e.key.Public().(ed25519.PublicKey))
		if c := challenge(&q); e.host.requests[c] == nil && e.host.searches[c] == nil {
			return q.ID, c
		}
	}
}

// asking is the request for a way on a link.
func (o *outgoing) asking(l *link) *frame.PathRequest {
	q := &frame.PathRequest{ID: o.id, Destination: o.to, Hello: o.endpoint.hello(l)}
	switch {
	case o.multihomed:
		q.Service = frame.Multihoming
	case o.of != nil:
		q.Service = frame.Multicast
	}
	return q
}

// granted takes the first way that was found for a request.
func (o *outgoing) granted(p *path, now time.Time) {
	if p.mtu == 0 {
		p.mtu = o.known(p)
	}
	switch {
	case o.request == 0: // the way is taken again
	case o.multihomed:
		o.before = o.request // its other answers tell of further ways
	default:
		delete(o.host.requests, o.request)
	}
	o.request, o.asks, o.nextAsk, o.rested, p.silent = 0, 0, time.Time{}, nil, 0
	o.answeredAt, o.last = now, p.place
	switch old := o.path; {
	case o.renewed(p):
	case o.multihomed && old != nil && old.silent < silences && p.number == o.answered:
		o.joined(p, now)
	default:
		o.leaveFurther(now)
		if old = o.path; old != nil {
			o.carries = old.carries
		}
		o.carries.Rerouted()
		p.stream, p.carries, o.path = o, o.carries, p
	}
	o.answered = p.number
	if payload := o.payload(); payload < o.sender.Payload || payload > o.sender.Payload && !o.sender.Started() {
		o.sender.Restart(payload)
	}
	o.probe()
	o.tellChanged()
	o.move(now)
}

// doubt is for a receiver that is silent. If there are further ways, the stream goes by these alone; or else another is asked
// for, and a label by which nothing has arrived yet is left off.
func (o *outgoing) doubt(p *path, now time.Time) {
	if len(o.further) > 0 {
		o.leave(p, now)
		return
	}
	if p.tag != 0 && !p.heard {
		o.plain = now.Add(distrust)
		p.tag, p.until = 0, now.Add(lease)
		if n := o.host.neighbours.find(o.to, p.place); n != nil {
			n.unlabel(p.place) // acknowledgements go there, too
		}
	}
	if o.request == 0 {
		o.endpoint.renew(now) // the network may have seen it say the same elsewhere
		o.ask(now)
	}
}
