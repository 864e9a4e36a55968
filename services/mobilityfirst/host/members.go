package host

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// search asks who has the name: again, if nobody has answered yet.
func (m *multicast) search(now time.Time) {
	h := m.host
	if m.request == 0 || !m.answered.IsZero() {
		delete(h.searches, m.request)
		m.id, m.request = m.endpoint.draw()
		h.searches[m.request] = m
		m.answered, m.asks, m.more = time.Time{}, 0, false
	}
	if m.endpoint.isClosed() {
		m.endpoint.renew(now) // nobody else does
	}
	m.tell(now)
	m.nextAsk = now.Add(min(firstAsk<<min(m.asks, 10), lastAsk))
	m.asks++
	m.schedule(now)
}

// tell asks on all links. Names beyond these are not asked for: of several hosts the name service knows one.
func (m *multicast) tell(now time.Time) {
	if m.asked = now; !m.host.limits.asks.AllowN(now, 1) {
		return
	}
	tellAll(m.host, func(l *link) frame.Frame { return m.asking(l) })
}

// tellKnown asks those who were members before and have not answered, where they were: broadcasts may be lost.
func (m *multicast) tellKnown() {
	for _, o := range m.members {
		if l := o.last.link; o.found != m.request && l != nil && l.up {
			l.tell(o.last.mac, 0, m.asking(l))
		}
	}
}

// asking is the request on a link.
func (m *multicast) asking(l *link) *frame.PathRequest {
	return &frame.PathRequest{ID: m.id, Destination: m.to, Service: frame.Multicast, Hello: m.endpoint.hello(l)}
}

// renew is when it is asked again, for the ways and for who has come: before the first of the ways ends.
func (m *multicast) renew() time.Time {
	due := m.asked.Add(askAgain)
	for _, o := range m.members {
		if p := o.path; p != nil && p.renew().Before(due) {
			due = p.renew()
		}
	}
	if soon := m.asked.Add(lease / 2); due.Before(soon) {
		return soon
	}
	return due
}

// settle gives what has waited to those who have answered, and forgets others.
func (m *multicast) settle(now time.Time) {
	for _, o := range slices.Clone(m.members) {
		if o.found != m.request && !o.wanted() {
			o.forget()
		}
	}
	if len(m.members) == 0 { // all are barred
		m.unsettle()
		m.nextAsk = now.Add(lastAsk)
		return
	}
	m.settled = true
	all := m.pending
	m.pending = nil
	for _, c := range all {
		m.give(c, now)
	}
}

// member is the one of a host: by its instance, or where it was, for one that has begun anew; nil for none.
func (m *multicast) member(instance uint64, at place) *outgoing {
	for _, o := range m.members {
		if o.instance == instance {
			return o
		}
	}
	for _, o := range m.members {
		if o.last == at {
			return o
		}
	}
	return nil
}

// granted takes an answer, of a member or, if o is nil, of a host that is none.
func (m *multicast) granted(o *outgoing, p *path, now time.Time) {
	if m.answered.IsZero() {
		m.answered, m.nextAsk, m.asks = now, time.Time{}, 0
		if !m.settled {
			m.secondAsk = now.Add(gather / 2)
		}
	}
	if o == nil {
		o = m.join(p, now)
	}
	if o != nil {
		m.take(o, p, now)
	}
	m.schedule(now)
}

// take takes a way to a member, unless that has a good one to another of its places.
func (m *multicast) take(o *outgoing, p *path, now time.Time) {
	for _, other := range m.members {
		if other != o && other.last == p.place {
			other.last = place{}
			if old := other.path; old != nil && old.place == p.place {
				other.leave(old, now)
				other.move(now)
			}
		}
	}
	o.instance, o.found = p.instance, m.request
	if old := o.path; old != nil && old.place != p.place && old.silent == 0 && now.Before(old.until) {
		return
	}
	if o.granted(p, now); now.Before(o.plain) {
		o.ask(now) // so that it leaves labels off, too
	}
}

// join has a host be a member from now on; nil if it can't.
func (m *multicast) join(p *path, now time.Time) *outgoing {
	if slices.ContainsFunc(m.barred, func(b barred) bool { return now.Before(b.until) && (b.instance == p.instance || b.at == p.place) }) {
		return nil
	}
	if len(m.members) < MaxMembers {
		if o, err := m.endpoint.outgoingBy(way{m.from, m.to, m.made + 1}); err == nil {
			m.made++
			o.of, o.heardAt, o.used = m, now, now
			m.members = append(m.members, o)
			return o
		}
	}
	m.more = true
	m.host.strange.Warn(m.host.Log, "more hosts have a name than chunks can go to", "name", m.to, "most", MaxMembers)
	return nil
}

// heard takes a hello of the name from where none of the members is: it is asked who that is.
func (m *multicast) heard(from, at place, now time.Time) {
	h := m.host
	if !m.active(now) || slices.ContainsFunc(m.members, func(o *outgoing) bool { return o.wayTo(at) != nil }) {
		return
	}
	if again := m.asked.Add(askedLately); now.Before(again) {
		if m.nextAsk.IsZero() {
			m.nextAsk = again
			m.schedule(now)
		}
		return
	}
	if h.mayAnswer(from, now) && h.limits.induced.AllowN(now, 1) {
		m.search(now)
	}
}

// miss asks a member for a way where it was last, without labels, and everybody if it is not there.
func (m *multicast) miss(o *outgoing, now time.Time) {
	if l := o.last.link; l != nil && l.up && m.host.limits.asks.AllowN(now, 1) {
		l.tell(o.last.mac, 0, o.asking(l))
	}
	if (o.path == nil || o.path.silent >= silences) && now.Sub(m.asked) >= askedLately {
		m.search(now)
	}
}

// loses leaves a member that has acknowledged nothing for too long, or that has taken nothing for as long as chunks are
// kept: the others are not to wait for it. If it has never taken anything, or takes nothing, it is left out for a while.
func (m *multicast) loses(o *outgoing, late bool, now time.Time) bool {
	why := ErrLost
	switch {
	case late && now.Sub(o.tookAt) >= lostAfter && now.Sub(o.givenAt) >= lostAfter:
		why = ErrKept
	case !o.wanted() || now.Sub(o.heardAt) < lostAfter:
		return false
	}
	if why == ErrKept || o.tookAt.IsZero() {
		m.bar(o, now)
	}
	o.end(why)
	return true
}

// barred is a host that is left out: by its instance and by where it was, since it may say that it has begun anew.
type barred struct {
	instance uint64
	at       place
	until    time.Time
}

// bar leaves a member out for a while; of too many the first is let in again.
func (m *multicast) bar(o *outgoing, now time.Time) {
	m.barred = slices.DeleteFunc(m.barred, func(b barred) bool { return now.After(b.until) })
	if len(m.barred) >= MaxMembers {
		m.barred = slices.Delete(m.barred, 0, 1)
	}
	m.barred = append(m.barred, barred{o.instance, o.last, now.Add(barredFor)})
}

// left has a stream be no member any more.
func (m *multicast) left(o *outgoing) {
	m.members = slices.DeleteFunc(m.members, func(other *outgoing) bool { return other == o })
	m.asked = time.Time{} // if it is still there, it is found before the next chunk
	if len(m.members) == 0 {
		m.unsettle()
		if len(m.pending) > 0 {
			m.nextAsk = time.Now()
			m.schedule(m.nextAsk)
		}
	}
}
