package host

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/stream"
)

// maxWays is by how many ways the frames of one stream go at one time.
const maxWays = 4

// joinWithin is how long after the first answer to a request others are taken.
const joinWithin = time.Second

// ways are those by which the stream goes, the first of which is path.
func (o *outgoing) ways() []*path {
	if o.path == nil {
		return nil
	}
	return append([]*path{o.path}, o.further...)
}

// goesBy says whether the stream goes by a way.
func (o *outgoing) goesBy(p *path) bool { return o.path == p || slices.Contains(o.further, p) }

// find is the first of the ways of which something is so, nil for none.
func (o *outgoing) find(is func(*path) bool) *path {
	if p := o.path; p != nil && is(p) {
		return p
	}
	if i := slices.IndexFunc(o.further, is); i >= 0 {
		return o.further[i]
	}
	return nil
}

// wayTo is the way by which the stream goes to a place, nil for none.
func (o *outgoing) wayTo(at place) *path {
	return o.find(func(p *path) bool { return p.place == at })
}

// wayOf is the way that a path of the stream stands for, nil for none.
func (o *outgoing) wayOf(c *stream.Path) *path {
	return o.find(func(p *path) bool { return p.carries == c })
}

// renew is when ways are to be asked for again: while there may be several, before the first of them ends, but no more often
// than one that is alone.
func (o *outgoing) renew() time.Time {
	if !o.multihomed {
		return o.path.renew()
	}
	due := []time.Time{o.path.renew()}
	for _, p := range o.ways() {
		if p.tag == 0 {
			due = append(due, p.found.Add(lease/2))
		} else {
			due = append(due, p.renew())
		}
	}
	return slices.MaxFunc([]time.Time{slices.MinFunc(due, time.Time.Compare), o.asked.Add(lease / 2)}, time.Time.Compare)
}

// leaveOver has the stream not go by ways any more that are not there any more.
func (o *outgoing) leaveOver(now time.Time) {
	for _, p := range slices.Clone(o.further) {
		if !now.Before(p.until) {
			o.leave(p, now)
		}
	}
	if o.path != nil && !now.Before(o.path.until) {
		o.leave(o.path, now)
	}
}

// payload is how many bytes of chunks frames carry that go by any of the ways.
func (o *outgoing) payload() int {
	least := o.path.payload()
	for _, p := range o.further {
		least = min(least, p.payload())
	}
	return least
}

// activate has the stream send what it may.
func (o *outgoing) activate() {
	if o.path != nil {
		o.path.link.activate(o.path)
	}
	for _, p := range o.further {
		p.link.activate(p)
	}
}

// renewed puts a way in the stead of one that leads to the same place, if there is one.
func (o *outgoing) renewed(p *path) bool {
	old := o.wayTo(p.place)
	if old == nil {
		return false
	}
	p.stream, p.carries = o, old.carries
	if old == o.path {
		o.path = p
	} else {
		o.further[slices.Index(o.further, old)] = p
	}
	return true
}

// joined takes a further way that was found for a request which has been answered. It has to lead to the same host, whose
// hellos have the same number on all its links; from another of ours or to another of its interfaces; and carry frames as
// large. A place answers once, and soon: what others repeat later says nothing.
func (o *outgoing) joined(p *path, now time.Time) {
	if !o.multihomed || o.path == nil || p.number != o.answered || now.Sub(o.answeredAt) > joinWithin {
		return
	}
	if old := o.wayTo(p.place); old != nil && !old.found.Before(o.answeredAt) {
		return
	}
	p.mtu = o.known(p)
	if !o.renewed(p) {
		here, there := false, false // taken already
		for _, other := range o.ways() {
			here, there = here || other.link == p.link, there || other.mac == p.mac
		}
		if here && there || len(o.further)+1 >= maxWays || p.payload() < o.sender.Payload {
			return
		}
		p.stream, p.carries = o, stream.NewPath()
		o.further = append(o.further, p)
		o.sender.Add(p.carries)
	}
	o.activate()
	o.schedule(now)
}

// leave has the stream not go by a way any more.
func (o *outgoing) leave(p *path, now time.Time) {
	switch i := slices.Index(o.further, p); {
	case i >= 0:
		o.further = slices.Delete(o.further, i, i+1)
	case p != o.path:
		return
	case len(o.further) == 0:
		o.path, o.carries = nil, p.carries
		return
	default:
		o.path = o.further[0]
		o.further = slices.Delete(o.further, 0, 1)
	}
	o.sender.Drop(p.carries, now)
	o.activate()
}

// leaveFurther has the stream go by path alone.
func (o *outgoing) leaveFurther(now time.Time) {
	for _, p := range slices.Clone(o.further) {
		o.leave(p, now)
	}
}

// lose gives the ways by a link up, and looks for another if there is something to send.
func (o *outgoing) lose(l *link, now time.Time) {
	any := false
	for _, p := range o.ways() {
		if p.link == l {
			o.leave(p, now)
			any = true
		}
	}
	if any && o.wanted() {
		o.ask(now)
	}
	o.schedule(now)
}

// expire is for a receiver that was silent until the sender's deadline.
func (o *outgoing) expire(now time.Time) {
	for _, c := range o.sender.Expire(now) {
		if p := o.wayOf(c); p != nil {
			if p.silent++; p.silent >= silences {
				o.doubt(p, now)
			}
		}
	}
	o.activate()
}
