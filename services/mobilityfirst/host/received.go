package host

import (
	"slices"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Received is a chunk that has come.
type Received struct {
	// From is the name of who has sent it: its host has been told so by the name's owner, or that has signed
	// the chunk, if a storage node has brought it.
	From    frame.GUID
	Service frame.Service
	Payload []byte

	host     *Host
	session  *session
	endpoint *Endpoint
	delivery *delivery
	bytes    int        // that are held for it
	kept     custody.ID // what it is in its flow, if a storage node has brought it
}

// Take says that the chunk is the receiver's: its sender forgets it. After the endpoint was closed it
// does nothing.
func (r *Received) Take() {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	r.take()
}

// take is Take. The host is locked.
func (r *Received) take() {
	if _, is := r.endpoint.handed[r]; !is {
		return
	}
	delete(r.endpoint.handed, r)
	if r.kept.Number > 0 {
		r.host.brought.done(r.kept, true)
	}
	r.drop()
	r.delivery.taken = true
	r.session.advance(r.host)
	r.host.feed()
}

// Refuse says that the receiver does not want the chunk now: its sender keeps it, and tries again a little later, until
// its time is over. So it does with those that have come behind it from the same sender: chunks come in order.
func (r *Received) Refuse() {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	if _, is := r.endpoint.handed[r]; is {
		r.refuse()
	}
}

// refuse is Refuse, of a chunk that was handed. The host is locked.
func (r *Received) refuse() {
	h, e := r.host, r.endpoint
	if in := r.session.in; in != nil {
		in.end(frame.ResetLater)
	}
	for other := range e.handed {
		if other.behind(r) {
			delete(e.handed, other)
			other.back()
		}
	}
	e.inbox = slices.DeleteFunc(e.inbox, func(other *Received) bool {
		if !other.behind(r) {
			return false
		}
		other.drop()
		return true
	})
	r.session.detach(h, r.delivery.number)
	h.feed()
}

// behind says whether a chunk is another or has come behind it.
func (r *Received) behind(other *Received) bool {
	return r.session == other.session && r.delivery.number >= other.delivery.number
}

// back has the chunk be the sender's again.
func (r *Received) back() {
	if r.kept.Number > 0 {
		r.host.brought.done(r.kept, false)
	}
	r.drop()
}

// drop gives the memory of the chunk's payload back.
func (r *Received) drop() {
	r.endpoint.held -= r.bytes
	r.host.release(r.delivery.account, r.bytes)
}
