package host

import (
	"errors"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/stream"
)

const (
	// window is the initial number of frames behind a missing one for which a stream has room.
	window = 128
	// maxWindowBytes limits the memory for the frames of a stream whose sender uses the whole
	// window.
	maxWindowBytes = 4 << 20
)

// incoming is a stream that the host receives.
type incoming struct {
	host         *Host
	peer         *neighbour
	endpoint     *Endpoint
	session      *session
	place                 // where it comes from and acknowledgements go to
	account      *account // the account of the place where it began
	receiver     *stream.Receiver
	mtu          int       // the maximum size of frames
	window       int       // bytes allocated for frames received out of order
	lastProgress time.Time // when a new frame was last received
	lastFrame    time.Time // when any frame was last received
	ackLink      *link     // the link whose list of acknowledgements contains it
	waiting      bool      // it waits for memory
	closed       bool      // it has ended
}

// openIncoming begins to receive a stream with its first frame, and returns nil if it does not
// accept the stream.
func (h *Host) openIncoming(at place, d *frame.StreamData, now time.Time) *incoming {
	if d.Number != 0 {
		if !d.Fresh {
			h.refuse(at, 0, d.Stream, frame.ResetUnknown, now)
		}
		return nil // the first frame was lost, and will be sent again
	}
	_, header, _, err := stream.Begin(d.Payload)
	if err != nil {
		h.refuse(at, 0, d.Stream, frame.ResetInvalid, now)
		return nil
	}
	peer := h.neighbours.find(header.Source.GUID, at)
	if peer == nil {
		h.refuse(at, 0, d.Stream, frame.ResetUnknown, now)
		return nil
	}
	if at.link.isFar() && !peer.hasConfirmed(header.Destination.GUID, d.Stream.Session()) {
		h.refuse(at, 0, d.Stream, frame.ResetUnknown, now)
		return nil
	}
	if !h.allowAnswer(at, now) {
		return nil
	}
	if old := h.incoming[d.Stream.Session()]; old != nil && old.peer == peer {
		old.close()
	}
	in := &incoming{host: h, peer: peer, endpoint: h.names[header.Destination.GUID], place: at, account: h.memory.account(at), mtu: at.link.MTU, window: window * at.link.MTU, lastProgress: now}
	h.memory.countStream(in.account, 1) // so that the account stays while other streams of it end
	if in.account.streams > maxIncoming/8 {
		h.reclaim(in.account, now)
	}
	if in.endpoint == nil || in.account.streams > maxIncoming/8 || in.account.far && h.memory.farStreams > maxIncoming/2 || h.incoming[d.Stream.Session()] != nil || !h.makeRoom(now) || !h.allocate(in.account, in.window, now) {
		h.memory.countStream(in.account, -1)
		h.memory.removeIfEmpty(in.account)
		h.refuse(at, peer.tag(at), d.Stream, frame.ResetRefused, now)
		return nil
	}
	in.receiver = stream.NewReceiver(stream.ReceiverConfig{
		Stream: d.Stream, Window: window, MaxChunk: MaxChunk, GrowWindow: in.growWindow, Reserve: func(bytes int) bool { return h.reserve(in, bytes, in.lastFrame) },
	})
	in.session = peer.session(in.endpoint.Name, d.Stream.Session(), now)
	in.session.in = in
	h.incoming[d.Stream.Session()] = in
	delete(h.sentResets, d.Stream.Session())
	return in
}

// growWindow allocates memory for a window of the given number of frames, and reports whether it
// did. It does so only if half of the memory that one place may use, and half of the total memory,
// stay free.
func (in *incoming) growWindow(frames int) bool {
	h, a, more := in.host, in.account, frames*in.mtu-in.window
	if in.window+more > maxWindowBytes || a.bytes+more > h.share()/2 || more > h.memory.left-h.Memory/2 || a.far && h.memory.farBytes+more > h.Memory/4 {
		return false
	}
	h.memory.charge(a, more)
	in.window += more
	return true
}

// refuse resets a stream that the host does not receive.
func (h *Host) refuse(at place, tag uint16, which frame.Stream, reason frame.ResetReason, now time.Time) {
	if !h.allowAnswer(at, now) {
		return
	}
	r := frame.StreamReset{Stream: which, Reason: reason}
	if f, ok := h.sentResets[which.Session()]; ok && f.place == at && f.reset.Stream == which {
		r = f.reset // the reset was lost
	}
	at.link.sendControl(at.mac, tag, &r)
}

// handleData handles a data frame.
func (h *Host) handleData(at place, d *frame.StreamData, now time.Time) {
	in := h.incoming[d.Stream.Session()]
	switch {
	case in == nil || d.Stream.After(in.receiver.Stream):
		if in = h.openIncoming(at, d, now); in == nil {
			return
		}
	case in.receiver.Stream != d.Stream || !in.acceptFrom(at):
		return
	}
	in.lastFrame, in.peer.lastHello, in.session.lastUsed = now, now, now
	before := in.receiver.Received()
	all, err := in.receiver.Data(d)
	if in.receiver.Received() > before {
		in.lastProgress = now
	}
	in.arrived(all, err)
}

// acceptFrom reports whether a stream may come from a place. If so, acknowledgements go there from
// now on.
func (in *incoming) acceptFrom(at place) bool {
	if in.place != at {
		if !in.peer.isAt(at) {
			return false
		}
		in.place = at
	}
	return true
}

// arrived delivers complete chunks, and ends the stream if err is not nil.
func (in *incoming) arrived(all []stream.Chunk, err error) {
	for _, c := range all {
		if c.Source.GUID != in.peer.name || c.Destination.GUID != in.endpoint.Name {
			in.releaseChunk(len(c.Payload))
			err = stream.ErrViolation
			continue
		}
		in.session.deliver(in, c)
	}
	var large *stream.TooLarge
	switch {
	case errors.As(err, &large):
		in.end(frame.ResetTooLarge)
	case err != nil:
		in.end(frame.ResetInvalid)
	default:
		in.link.acknowledge(in)
	}
}

// releaseChunk releases the memory that was reserved for a chunk.
func (in *incoming) releaseChunk(bytes int) {
	in.host.release(in.account, bytes+overhead)
}

// resume continues the stream after it has waited for memory.
func (in *incoming) resume() { in.arrived(in.receiver.Resume()) }

// timeout returns how long the stream may be silent.
func (in *incoming) timeout() time.Duration {
	if in.receiver.Reserved() > 0 {
		return stalledTimeout
	}
	return idleTimeout
}

const (
	// The resets that the host has sent are kept for sentResetLifetime, so that a lost one can be
	// sent again, and for at most maxSentResets streams.
	sentResetLifetime, maxSentResets = 30 * time.Second, 1024
)

// sentReset is the reset with which the host has ended a stream.
type sentReset struct {
	place
	reset frame.StreamReset
	at    time.Time
}

// end resets the stream, and tells the sender which chunks have been taken over. The sender sends
// incomplete chunks again.
func (in *incoming) end(reason frame.ResetReason) {
	h, r := in.host, frame.StreamReset{Stream: in.receiver.Stream, Reason: reason, Taken: in.receiver.Ack().Taken}
	in.link.sendControl(in.mac, in.peer.tag(in.place), &r)
	if len(h.sentResets) < maxSentResets {
		h.sentResets[r.Stream.Session()] = sentReset{in.place, r, in.lastProgress}
	}
	in.close()
}

// close removes the stream.
func (in *incoming) close() {
	h := in.host
	delete(h.incoming, in.receiver.Stream.Session())
	if in.session.in == in {
		in.session.in = nil
	}
	if in.waiting {
		h.memory.waiting = slices.DeleteFunc(h.memory.waiting, func(other *incoming) bool { return other == in })
	}
	if n := in.receiver.Reserved(); n > 0 {
		in.releaseChunk(n)
	}
	in.closed, in.receiver = true, nil
	h.memory.countStream(in.account, -1)
	h.release(in.account, in.window)
}
