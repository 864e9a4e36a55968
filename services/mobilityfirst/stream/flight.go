package stream

import (
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// flight records the frames that have been sent, beginning with the first that is not acknowledged.
type flight struct {
	base uint64 // the number of the first frame
	all  []sentFrame
	// firstLost is where the search for a lost frame begins; no frame before it is lost.
	firstLost uint64
}

// sentFrame is the state of a frame that has been sent.
type sentFrame struct {
	at            time.Time
	path          *Path
	transmission  uint64 // the number of its last transmission by the path
	state         frameState
	retransmitted bool // the frame was sent more than once
}

type frameState uint8

const (
	stateInFlight frameState = iota
	stateLost
	stateAcked
)

// end returns the number of the first frame that has never been sent.
func (f *flight) end() uint64 { return f.base + uint64(len(f.all)) }

// nextLost returns the first lost frame, which has to be sent again. ok is false if there is none.
func (f *flight) nextLost() (n uint64, ok bool) {
	for n = max(f.firstLost, f.base); n < f.end(); n++ {
		if f.all[n-f.base].state == stateLost {
			f.firstLost = n
			return n, true
		}
	}
	f.firstLost = n
	return 0, false
}

// send records that a frame is sent by a path, either the next new frame or a lost one.
func (f *flight) send(p *Path, n uint64, now time.Time) {
	p.transmissions++
	p.inFlight++
	o := sentFrame{at: now, path: p, transmission: p.transmissions}
	if n == f.end() {
		f.all = append(f.all, o)
		return
	}
	o.retransmitted = true
	f.all[n-f.base] = o
}

// acked applies an acknowledgement that the caller has checked.
func (f *flight) acked(a *frame.StreamAck) {
	for n := f.base; n < a.Next; n++ {
		f.ack(n)
	}
	at := a.Next
	for _, r := range a.Ranges {
		at += uint64(r.Skip)
		for end := at + uint64(r.Count); at < end; at++ {
			f.ack(at)
		}
	}
	f.all = f.all[a.Next-f.base:]
	f.base = a.Next
}

// ack records that a frame has been acknowledged.
func (f *flight) ack(n uint64) {
	o := &f.all[n-f.base]
	if o.state == stateAcked {
		return
	}
	if o.state == stateInFlight {
		o.path.inFlight--
	}
	o.state = stateAcked
	acks := &o.path.newAcks
	acks.count++
	if o.transmission > acks.transmission {
		acks.transmission, acks.at, acks.measured = o.transmission, o.at, !o.retransmitted
	}
}

// packetThreshold is the number of transmissions by which a frame has to precede an acknowledged
// frame of the same path to count as lost (RFC 9002, 6.1.1).
const packetThreshold = 3

// detectLosses marks the frames of a path as lost that were sent packetThreshold transmissions or
// more before the given acknowledged one. It returns the latest transmission of the lost frames, or
// zero if there are none.
func (f *flight) detectLosses(p *Path, order uint64) (latest uint64) {
	for i := range f.all {
		if o := &f.all[i]; o.path == p && o.state == stateInFlight && o.transmission+packetThreshold <= order {
			f.markLost(i)
			latest = max(latest, o.transmission)
		}
	}
	return latest
}

// loseAll marks all frames of a path that are in flight as lost.
func (f *flight) loseAll(p *Path) {
	for i := range f.all {
		if o := &f.all[i]; o.path == p && o.state == stateInFlight {
			f.markLost(i)
		}
	}
}

// markLost marks a frame as lost.
func (f *flight) markLost(i int) {
	o := &f.all[i]
	o.state = stateLost
	o.path.inFlight--
	f.firstLost = min(f.firstLost, f.base+uint64(i))
}
