package stream

import (
	"time"

	"github.com/sluice-net/sluice/mobilityfirst/frame"
)

// flight is what is known of frames that have been sent, from the first that is not acknowledged on.
type flight struct {
	base uint64 // the first of them
	all  []outstanding
	// under is how many are under way: neither acknowledged nor lost.
	under int
	// orders counts all transmissions.
	orders uint64
	// firstLost is where to look for one that is lost; none is before.
	firstLost uint64
}

// outstanding is a frame that has been sent.
type outstanding struct {
	at    time.Time
	order uint64 // which transmission it was, the last time
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

// send notes that a frame is sent, a new one or one that was lost.
func (f *flight) send(n uint64, now time.Time) {
	f.orders++
	o := outstanding{at: now, order: f.orders}
	if n == f.end() {
		f.all = append(f.all, o)
	} else {
		o.again = true
		f.all[n-f.base] = o
	}
	f.under++
}

// arrival is what an acknowledgement has brought.
type arrival struct {
	frames int // that were not known to have come
	// order is the latest transmission of them, at when that was, measured whether it was the
	// frame's only one.
	order    uint64
	at       time.Time
	measured bool
}

// acked takes an acknowledgement that fits.
func (f *flight) acked(a *frame.StreamAck) (got arrival) {
	for n := f.base; n < a.Next; n++ {
		f.came(n, &got)
	}
	at := a.Next
	for _, r := range a.Ranges {
		at += uint64(r.Skip)
		for end := at + uint64(r.Count); at < end; at++ {
			f.came(at, &got)
		}
	}
	f.all = f.all[a.Next-f.base:]
	f.base = a.Next
	return got
}

// came notes that a frame has come.
func (f *flight) came(n uint64, got *arrival) {
	o := &f.all[n-f.base]
	if o.state == arrived {
		return
	}
	if o.state == underWay {
		f.under--
	}
	o.state = arrived
	got.frames++
	if o.order > got.order {
		got.order, got.at, got.measured = o.order, o.at, !o.again
	}
}

// reordered is how many transmissions later than a frame's another frame's has to be that has come,
// for the first to count as lost (RFC 9002, 6.1.1).
const reordered = 3

// miss marks as lost what was sent before what has come, and gives the latest transmission of
// these; zero for none.
func (f *flight) miss(order uint64) (latest uint64) {
	for i := range f.all {
		if o := &f.all[i]; o.state == underWay && o.order+reordered <= order {
			f.lose(i)
			latest = max(latest, o.order)
		}
	}
	return latest
}

// allLost marks as lost all that is under way.
func (f *flight) allLost() {
	for i := range f.all {
		if f.all[i].state == underWay {
			f.lose(i)
		}
	}
}

func (f *flight) lose(i int) {
	f.all[i].state = lost
	f.under--
	f.firstLost = min(f.firstLost, f.base+uint64(i))
}
