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

// path tells how frames reach a host of a name: by which link, at which Ethernet address and with
// which label.
type path struct {
	foundAt  time.Time
	acked    bool // the receiver has acknowledged a frame sent by it
	silences int  // how often in a row the receiver has not answered in time
	place
	tag uint16 // the label, zero for none
	// leasedUntil is when the network's lease of the label ends.
	leasedUntil time.Time
	// renewal is how long after foundAt a path without a label is requested again.
	renewal time.Duration
	// expires is when the path may no longer be used, unless the receiver answers by it until then.
	expires time.Time
	number  uint64 // the number of the hello in the answer
	// instance tells the answering host apart from others that have the name.
	instance uint64
	// mtu is the maximum frame size that is known to arrive; zero until the path is used.
	mtu    int
	probes []probe // pending probes of larger frames

	stream     *outgoing
	streamPath *stream.Path
	listed     bool // it is in its link's list
}

const (
	// lease is how long a path that the network has not leased is valid, and how long any path is
	// valid after the receiver has last answered by it.
	lease = 30 * time.Second
	// A path without a label is requested again after initialRenewal, and then less and less often,
	// up to unlabelledRenewal: a controller that did not know the receiver yet, or was away, can set
	// up a path with a label, and tells the host when the receiver moves.
	initialRenewal, unlabelledRenewal = time.Second, time.Minute
	// labelDistrust is how long labels to a name are not used after frames with one of them have
	// not arrived.
	labelDistrust = 10 * time.Minute
)

// renewAt returns when the path has to be requested again.
func (p *path) renewAt() time.Time {
	if p.tag == 0 {
		return p.foundAt.Add(p.renewal)
	}
	return p.leasedUntil.Add(-lease / 2)
}

// renewalAfter returns the time after which a path without a label is requested again, if it
// replaces the path before, which may be nil.
func renewalAfter(before *path) time.Duration {
	if before == nil || before.tag != 0 {
		return initialRenewal
	}
	return min(2*before.renewal, unlabelledRenewal)
}

// requestPath requests a path to the name on all links. If a stream without a path has no answer to
// its first request, requestPath also sends the request by labels: without a controller, the
// switches may forward nothing else.
func (o *outgoing) requestPath(now time.Time) {
	h := o.host
	o.pausedPath = nil
	if o.request == 0 {
		delete(h.requests, o.previousRequest)
		o.previousRequest = 0
		o.id, o.request = o.endpoint.newRequestID()
		h.requests[o.request] = o
	}
	if o.endpoint.isClosed() {
		o.endpoint.renew(now) // a closed endpoint is not renewed by tick
	}
	switch {
	case o.multicast != nil:
		o.multicast.requestPath(o, now)
	case h.limits.requests.AllowN(now, 1):
		o.askedAt = now
		broadcastAll(h, func(l *link) frame.Frame { return o.pathRequest(l) })
		if o.attempts > 0 && o.path == nil && !now.Before(o.noLabelsUntil) {
			h.requestByLabels(o.to, o.pathRequest, now)
		}
		if p := o.path; p != nil && p.link.isFar() {
			o.requestAt([]netip.AddrPort{udplink.Addr(p.mac)})
		}
		if o.attempts >= lookUpAfter || !h.near() {
			o.lookUp()
		}
	}
	o.nextRequest = now.Add(min(initialRetry<<min(o.attempts, 10), maxRetry))
	o.attempts++
	o.schedule(now)
}

// maxLabelled is the number of places to which one request is sent by labels.
const maxLabelled = 16

// requestByLabels sends a request for a name to places to which the host knows labels: first to
// those of the name, then to others, where the name may be as well. The request contains the label,
// so that the answer grants a path with it.
func (h *Host) requestByLabels(to frame.GUID, request func(*link) *frame.PathRequest, now time.Time) {
	asked := map[place]bool{}
	ask := func(at place) {
		tag := h.neighbours.tagTo(at)
		if tag == 0 || asked[at] || len(asked) == maxLabelled || !at.link.up || !h.limits.labelled.AllowN(now, 1) {
			return
		}
		asked[at] = true
		q := request(at.link)
		q.Forth = tag
		at.link.sendControl(at.mac, tag, q)
	}
	if n := h.neighbours.byName[to]; n != nil {
		for _, r := range n.places {
			ask(r.place)
		}
	}
	for at := range h.neighbours.byPlace {
		if len(asked) == maxLabelled {
			break
		}
		ask(at)
	}
}

// newRequestID returns a random ID for a request, and the challenge of its answers.
func (e *Endpoint) newRequestID() (id, answer uint64) {
	for {
		q := frame.PathRequest{ID: rand.Uint64()}
		copy(q.Hello.Key[:], e.key.Public().(ed25519.PublicKey))
		if c := challenge(&q); e.host.requests[c] == nil && e.host.searches[c] == nil {
			return q.ID, c
		}
	}
}

// pathRequest returns the path request for a link.
func (o *outgoing) pathRequest(l *link) *frame.PathRequest {
	q := &frame.PathRequest{ID: o.id, Destination: o.to, Hello: o.endpoint.hello(l)}
	switch {
	case o.multihomed:
		q.Service = frame.Multihoming
	case o.multicast != nil:
		q.Service = frame.Multicast
	}
	return q
}

// handleGrant uses the first path that was found for a request.
func (o *outgoing) handleGrant(p *path, now time.Time) {
	if p.mtu == 0 {
		p.mtu = o.initialMTU(p)
	}
	switch {
	case o.request == 0: // a paused path is used again
	case o.multihomed:
		o.previousRequest = o.request // further answers to this request tell of further paths
	default:
		delete(o.host.requests, o.request)
	}
	before := o.pathTo(p.place)
	p.renewal = renewalAfter(before)
	// The receiver was not there: it has not answered, or it has moved.
	wasAway := before != nil && (before.silences > 0 || o.moved > 0 && p.number >= o.moved)
	o.request, o.attempts, o.nextRequest, o.moved, o.pausedPath, p.silences = 0, 0, time.Time{}, 0, nil, 0
	o.answeredAt, o.lastPlace = now, p.place
	switch old := o.path; {
	case o.replacePath(p):
		if wasAway {
			o.sender.Rerouted(p.streamPath, now)
		}
	case o.multihomed && old != nil && old.silences < maxSilences && p.number == o.answeredNumber:
		o.addPath(p, now)
	default:
		o.dropMorePaths(now)
		if old = o.path; old != nil {
			o.streamPath = old.streamPath
		}
		o.sender.Rerouted(o.streamPath, now)
		p.stream, p.streamPath, o.path = o, o.streamPath, p
	}
	o.answeredNumber = p.number
	if payload := o.payload(); payload < o.sender.Payload || payload > o.sender.Payload && !o.sender.Started() {
		o.sender.Restart(payload)
	}
	o.probe()
	o.notifyChanged()
	o.proceed(now)
}

// handleSilence handles a path by which the receiver does not answer. If the stream has further
// paths, it leaves this one. Otherwise it requests another path, and stops using the label if
// nothing has arrived with it yet.
func (o *outgoing) handleSilence(p *path, now time.Time) {
	if len(o.morePaths) > 0 {
		o.dropPath(p, now)
		return
	}
	if p.tag != 0 && !p.acked {
		o.noLabelsUntil = now.Add(labelDistrust)
		p.tag, p.expires = 0, now.Add(lease)
		if n := o.host.neighbours.find(o.to, p.place); n != nil {
			n.unlabel(p.place) // acknowledgements to this place use the label, too
		}
	}
	if o.request == 0 {
		o.endpoint.renew(now) // with its old number the network could take the hello for a copy of one that it has received elsewhere
		o.requestPath(now)
	}
}
