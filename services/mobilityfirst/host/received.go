package host

import (
	"slices"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// Received is a received chunk.
type Received struct {
	// From is the name of the sender. The name's owner has signed where its host is or, if a
	// storage node has delivered the chunk, the chunk itself.
	From    frame.GUID
	Service frame.Service
	Payload []byte

	host     *Host
	session  *session
	endpoint *Endpoint
	delivery *delivery
	bytes    int        // that count for the endpoint
	kept     custody.ID // its ID in its flow, if a storage node has delivered it
}

// Place returns where the chunk has come from: the neighbour or, from beyond the host's links, the
// address at which its stream began.
func (r *Received) Place() hostapi.Place { return r.delivery.account.at.id() }

// Take takes the chunk over: its sender may forget it. Take does nothing after the endpoint was
// closed.
func (r *Received) Take() {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	r.take()
}

// take takes the chunk over, as Take does. The host is locked.
func (r *Received) take() {
	if _, ok := r.endpoint.untaken[r]; !ok {
		return
	}
	delete(r.endpoint.untaken, r)
	if r.kept.Number > 0 {
		r.host.custodyFlows.done(r.kept, true)
	}
	r.drop()
	r.delivery.taken = true
	r.session.advance(r.host)
	r.host.resumeWaiting()
}

// Refuse refuses the chunk for now: its sender keeps it and tries again a little later, until its
// time has ended. Chunks come in order, so Refuse also refuses the later ones from the same sender.
func (r *Received) Refuse() {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	if _, ok := r.endpoint.untaken[r]; ok {
		r.refuse()
	}
}

// refuse refuses a chunk in untaken, as Refuse does. The host is locked.
func (r *Received) refuse() {
	h, e := r.host, r.endpoint
	if in := r.session.in; in != nil {
		in.end(frame.ResetLater)
	}
	for other := range e.untaken {
		if other.sameOrAfter(r) {
			delete(e.untaken, other)
			other.undeliver()
		}
	}
	e.inbox = slices.DeleteFunc(e.inbox, func(other *Received) bool {
		if !other.sameOrAfter(r) {
			return false
		}
		other.drop()
		return true
	})
	r.session.discardFrom(h, r.delivery.number)
	h.resumeWaiting()
}

// sameOrAfter reports whether a chunk is other, or came after it in the same session.
func (r *Received) sameOrAfter(other *Received) bool {
	return r.session == other.session && r.delivery.number >= other.delivery.number
}

// undeliver discards a chunk that the application has not taken. A chunk from a storage node may
// then be delivered again.
func (r *Received) undeliver() {
	if r.kept.Number > 0 {
		r.host.custodyFlows.done(r.kept, false)
	}
	r.drop()
}

// drop releases the memory of the chunk's payload.
func (r *Received) drop() {
	r.endpoint.untakenBytes -= r.bytes
	r.host.release(r.delivery.account, r.bytes)
}
