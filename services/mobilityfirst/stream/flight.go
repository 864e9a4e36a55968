package stream

import (
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// flight is what is known of frames that have been sent, from the first that is not acknowledged on.
type flight struct {
	base uint64 // the first of them
	all  []outstanding
	// firstLost is where to look for one that is lost; none is before.
	firstLost uint64
}

// outstanding is a frame that has been sent.
type outstanding struct {
	at    time.Time
	path  *Path
	order uint64 // which transmission of the path it was, the last time
	state frameState
	again bool // it was sent more than once
}

type frameState uint8

const (
	underWay frameState = iota
	lost
	arrived
)

// end is the first frame that was never sent.
func (f *flight) end() uint64 { return f.base + uint64(len(f.all)) }

// lost is the first frame that is to be sent again, if there is one.
func (f *flight) lost() (n uint64, any bool) {
	for n = max(f.firstLost, f.base); n < f.end(); n++ {
		if f.all[n-f.base].state == lost {
			f.firstLost = n
			return n, true
		}
	}
	f.firstLost = n
	return 0, false
}

// send notes that a frame is sent by a path, a new one or one that was lost.
func (f *flight) send(p *Path, n uint64, now time.Time) {
	p.orders++
	p.under++
	o := outstanding{at: now, path: p, order: p.orders}
	if n == f.end() {
		f.all = append(f.all, o)
		return
	}
	o.again = true
	f.all[n-f.base] = o
}

// acked takes an acknowledgement that fits.
func (f *flight) acked(a *frame.StreamAck) {
	for n := f.base; n < a.Next; n++ {
		f.came(n)
	}
	at := a.Next
	for _, r := range a.Ranges {
		at += uint64(r.Skip)
		for end := at + uint64(r.Count); at < end; at++ {
			f.came(at)
		}
	}
	f.all = f.all[a.Next-f.base:]
	f.base = a.Next
}

// came notes that a frame has come.
func (f *flight) came(n uint64) {
	o := &f.all[n-f.base]
	if o.state == arrived {
		return
	}
	if o.state == underWay {
		o.path.under--
	}
	o.state = arrived
	got := &o.path.got
	got.frames++
	if o.order > got.order {
		got.order, got.at, got.measured = o.order, o.at, !o.again
	}
}

// reordered is how many transmissions by the same path later than a frame's another frame's has to be that has come,
// for the first to count as lost (RFC 9002, 6.1.1).
const reordered = 3

// miss marks as lost what was sent by a path before what has come by it, and gives the latest transmission of
// these; zero for none.
func (f *flight) miss(p *Path, order uint64) (latest uint64) {
	for i := range f.all {
		if o := &f.all[i]; o.path == p && o.state == underWay && o.order+reordered <= order {
			f.loseOne(i)
			latest = max(latest, o.order)
		}
	}
	return latest
}

// lose marks as lost all that is under way by a path.
func (f *flight) lose(p *Path) {
	for i := range f.all {
		if o := &f.all[i]; o.path == p && o.state == underWay {
			f.loseOne(i)
		}
	}
}

// loseOne marks a frame as lost.
func (f *flight) loseOne(i int) {
	o := &f.all[i]
	o.state = lost
	o.path.under--
	f.firstLost = min(f.firstLost, f.base+uint64(i))
}
