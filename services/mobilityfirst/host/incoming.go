package host

import (
	"errors"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/stream"
)

const (
	// window is for how many frames of a stream there is room at first behind one that is missing.
	window = 128
	// mostRoom is how many bytes are taken at most for the frames of a stream whose sender has used all room.
	mostRoom = 4 << 20
)

// incoming is a stream that the host receives.
type incoming struct {
	host     *Host
	peer     *neighbour
	endpoint *Endpoint
	session  *session
	place             // where it comes from, and acknowledgements go to
	account  *account // that of where it was begun
	receiver *stream.Receiver
	mtu      int       // how large frames are at most
	window   int       // bytes that are taken for frames that come early
	heard    time.Time // when something new came
	last     time.Time // when anything did
	ackOn    *link     // in whose list it stands
	starved  bool      // it waits for memory
	left     bool      // it is over
}

// open begins to receive a stream with its first frame; nil if it is not to be.
func (h *Host) open(at place, d *frame.StreamData, now time.Time) *incoming {
	if d.Number != 0 {
		if !d.Fresh {
			h.refuse(at, 0, d.Stream, frame.ResetUnknown, now)
		}
		return nil // the first frame was lost, and is sent again
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
	if at.link.isFar() && !peer.isConfirmed(header.Destination.GUID, d.Stream.Session()) {
		h.refuse(at, 0, d.Stream, frame.ResetUnknown, now)
		return nil
	}
	if !h.mayAnswer(at, now) {
		return nil
	}
	if old := h.in[d.Stream.Session()]; old != nil && old.peer == peer {
		old.leave()
	}
	in := &incoming{host: h, peer: peer, endpoint: h.names[header.Destination.GUID], place: at, account: h.memory.account(at), mtu: at.link.MTU, window: window * at.link.MTU, heard: now}
	h.memory.stream(in.account, 1) // and so it stays while others of it end
	if in.account.streams > maxIncoming/8 {
		h.reclaim(in.account, now)
	}
	if in.endpoint == nil || in.account.streams > maxIncoming/8 || in.account.far && h.memory.farStreams > maxIncoming/2 || h.in[d.Stream.Session()] != nil || !h.makePlace(now) || !h.take(in.account, in.window, now) {
		h.memory.stream(in.account, -1)
		h.memory.settle(in.account)
		h.refuse(at, peer.tag(at, now), d.Stream, frame.ResetRefused, now)
		return nil
	}
	in.receiver = stream.NewReceiver(stream.ReceiverConfig{
		Stream: d.Stream, Window: window, MaxChunk: MaxChunk, GrowWindow: in.widen, Reserve: func(bytes int) bool { return h.reserve(in, bytes, in.last) },
	})
	in.session = peer.session(in.endpoint.Name, d.Stream.Session(), now)
	in.session.in = in
	h.in[d.Stream.Session()] = in
	delete(h.farewells, d.Stream.Session())
	return in
}

// widen takes memory for more frames, so many in all, if half of what there is for a place, and for all, is left then.
func (in *incoming) widen(frames int) bool {
	h, a, more := in.host, in.account, frames*in.mtu-in.window
	if in.window+more > mostRoom || a.bytes+more > h.share()/2 || more > h.memory.left-h.Memory/2 || a.far && h.memory.farBytes+more > h.Memory/4 {
		return false
	}
	h.memory.charge(a, more)
	in.window += more
	return true
}

// refuse ends a stream that is none of ours.
func (h *Host) refuse(at place, tag uint16, which frame.Stream, reason frame.ResetReason, now time.Time) {
	if !h.mayAnswer(at, now) {
		return
	}
	r := frame.StreamReset{Stream: which, Reason: reason}
	if f, is := h.farewells[which.Session()]; is && f.place == at && f.reset.Stream == which {
		r = f.reset // it was lost
	}
	at.link.tell(at.mac, tag, &r)
}

// data takes a frame.
func (h *Host) data(at place, d *frame.StreamData, now time.Time) {
	in := h.in[d.Stream.Session()]
	switch {
	case in == nil || d.Stream.After(in.receiver.Stream):
		if in = h.open(at, d, now); in == nil {
			return
		}
	case in.receiver.Stream != d.Stream || !in.from(at):
		return
	}
	in.last, in.peer.heard, in.session.used = now, now, now
	before := in.receiver.Received()
	all, err := in.receiver.Data(d)
	if in.receiver.Received() > before {
		in.heard = now
	}
	in.arrived(all, err)
}

// from says whether a stream may come from a place, and has it acknowledged to there from now on.
func (in *incoming) from(at place) bool {
	if in.place != at {
		if !in.peer.is(at) {
			return false
		}
		in.place = at
	}
	return true
}

// arrived takes chunks that are whole.
func (in *incoming) arrived(all []stream.Chunk, err error) {
	for _, c := range all {
		if c.Source.GUID != in.peer.name || c.Destination.GUID != in.endpoint.Name {
			in.giveBack(len(c.Payload))
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

// giveBack gives back what was reserved for a chunk.
func (in *incoming) giveBack(bytes int) {
	in.host.release(in.account, bytes+overhead)
}

// resume goes on where there was no memory.
func (in *incoming) resume() { in.arrived(in.receiver.Resume()) }

// patience is how long the stream may be silent.
func (in *incoming) patience() time.Duration {
	if in.receiver.Reserved() > 0 {
		return stalled
	}
	return idle
}

const (
	// A farewell is what is said once more of a stream that was broken off: for so long, and of at most
	// so many streams.
	farewellFor, maxFarewells = 30 * time.Second, 1024
)

// farewell is what was said last of a stream.
type farewell struct {
	place
	reset frame.StreamReset
	at    time.Time
}

// end breaks the stream off, and tells the sender what is taken. Chunks that have not come whole will come
// again.
func (in *incoming) end(reason frame.ResetReason) {
	h, r := in.host, frame.StreamReset{Stream: in.receiver.Stream, Reason: reason, Taken: in.receiver.Ack().Taken}
	in.link.tell(in.mac, in.peer.tag(in.place, time.Now()), &r)
	if len(h.farewells) < maxFarewells {
		h.farewells[r.Stream.Session()] = farewell{in.place, r, in.heard}
	}
	in.leave()
}

// leave forgets the stream.
func (in *incoming) leave() {
	h := in.host
	delete(h.in, in.receiver.Stream.Session())
	if in.session.in == in {
		in.session.in = nil
	}
	if in.starved {
		h.memory.starved = slices.DeleteFunc(h.memory.starved, func(other *incoming) bool { return other == in })
	}
	if n := in.receiver.Reserved(); n > 0 {
		in.giveBack(n)
	}
	in.left, in.receiver = true, nil
	h.memory.stream(in.account, -1)
	h.release(in.account, in.window)
}
