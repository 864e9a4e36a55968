package host

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// search requests paths to the hosts that have the name. It repeats the last request if no host has
// answered it yet.
func (m *multicast) search(now time.Time) {
	h := m.host
	if m.request == 0 || !m.answeredAt.IsZero() {
		delete(h.searches, m.request)
		m.id, m.request = m.endpoint.newRequestID()
		h.searches[m.request] = m
		m.answeredAt, m.attempts, m.more = time.Time{}, 0, false
	}
	if m.endpoint.isClosed() {
		m.endpoint.renew(now) // a closed endpoint is not renewed by tick
	}
	m.sendRequests(now)
	m.nextRequest = now.Add(min(initialRetry<<min(m.attempts, 10), maxRetry))
	m.attempts++
	m.schedule(now)
}

// sendRequests sends the request on all links and, if no host has answered the first one, by labels.
// Hosts beyond the links are not found, because the name service knows only one host of a name.
func (m *multicast) sendRequests(now time.Time) {
	if m.askedAt = now; !m.host.limits.requests.AllowN(now, 1) {
		return
	}
	broadcastAll(m.host, func(l *link) frame.Frame { return m.pathRequest(l) })
	if m.attempts > 0 && m.answeredAt.IsZero() {
		m.host.requestByLabels(m.to, m.pathRequest, now)
	}
}

// requestMembers sends the request to the known members that have not answered, at their last
// places, because a broadcast may have been lost.
func (m *multicast) requestMembers() {
	for _, o := range m.members {
		if l := o.lastPlace.link; o.lastAnswer != m.request && l != nil && l.up {
			l.sendControl(o.lastPlace.mac, 0, m.pathRequest(l))
		}
	}
}

// pathRequest returns the path request for a link.
func (m *multicast) pathRequest(l *link) *frame.PathRequest {
	return &frame.PathRequest{ID: m.id, Destination: m.to, Service: frame.Multicast, Hello: m.endpoint.hello(l)}
}

// renewAt returns when the request has to be sent again to renew paths and find new members: before
// the first of the paths ends.
func (m *multicast) renewAt() time.Time {
	due := m.askedAt.Add(unlabelledRenewal)
	for _, o := range m.members {
		if p := o.path; p != nil && p.renewAt().Before(due) {
			due = p.renewAt()
		}
	}
	if soon := m.askedAt.Add(lease / 2); due.Before(soon) {
		return soon
	}
	return due
}

// settle gives the waiting chunks to the hosts that have answered, and removes other members.
func (m *multicast) settle(now time.Time) {
	for _, o := range slices.Clone(m.members) {
		if o.lastAnswer != m.request && !o.hasWork() {
			o.forget()
		}
	}
	if len(m.members) == 0 { // all hosts are barred
		m.unsettle()
		m.nextRequest = now.Add(maxRetry)
		return
	}
	m.settled = true
	all := m.pending
	m.pending = nil
	for _, c := range all {
		m.queue(c, now)
	}
}

// member returns the member with the given instance. If there is none, the member's host may have
// restarted: member then returns the member that was last at the given place, or nil.
func (m *multicast) member(instance uint64, at place) *outgoing {
	for _, o := range m.members {
		if o.instance == instance {
			return o
		}
	}
	for _, o := range m.members {
		if o.lastPlace == at {
			return o
		}
	}
	return nil
}

// handleGrant handles an answer of a member or, if o is nil, of a host that is not a member yet.
func (m *multicast) handleGrant(o *outgoing, p *path, now time.Time) {
	if m.answeredAt.IsZero() {
		m.answeredAt, m.nextRequest, m.attempts = now, time.Time{}, 0
		if !m.settled {
			m.secondRequest = now.Add(gatherTime / 2)
		}
	}
	if o == nil {
		o = m.join(p, now)
	}
	if o != nil {
		m.updateMember(o, p, now)
	}
	m.schedule(now)
}

// updateMember uses a path to a member, unless the member has a working path to another of its
// places.
func (m *multicast) updateMember(o *outgoing, p *path, now time.Time) {
	for _, other := range m.members {
		if other != o && other.lastPlace == p.place {
			other.lastPlace = place{}
			if old := other.path; old != nil && old.place == p.place {
				other.dropPath(old, now)
				other.proceed(now)
			}
		}
	}
	o.instance, o.lastAnswer = p.instance, m.request
	if old := o.path; old != nil && old.place != p.place && old.silences == 0 && now.Before(old.expires) {
		return
	}
	if o.handleGrant(p, now); now.Before(o.noLabelsUntil) {
		o.requestPath(now) // so that the member stops using labels, too
	}
}

// join adds a host as a member, and returns nil if that is not possible.
func (m *multicast) join(p *path, now time.Time) *outgoing {
	if slices.ContainsFunc(m.barred, func(b barred) bool { return now.Before(b.until) && (b.instance == p.instance || b.at == p.place) }) {
		return nil
	}
	if len(m.members) < MaxMembers {
		if o, err := m.endpoint.outgoingBy(streamKey{m.from, m.to, m.lastMember + 1}); err == nil {
			m.lastMember++
			o.multicast, o.lastAck, o.lastUsed = m, now, now
			m.members = append(m.members, o)
			return o
		}
	}
	m.more = true
	m.host.warnLimit.Warn(m.host.Log, "more hosts have a name than a chunk can be sent to", "name", m.to, "most", MaxMembers)
	return nil
}

// handleHello handles a hello of the name from a place where no member is, or whose member has
// moved: it requests a path to find out which host that is.
func (m *multicast) handleHello(from, at place, announced bool, now time.Time) {
	h := m.host
	if !m.active(now) || slices.ContainsFunc(m.members, func(o *outgoing) bool { p := o.pathTo(at); return p != nil && p.silences == 0 && !announced }) {
		return
	}
	if again := m.askedAt.Add(minRequestInterval); now.Before(again) {
		if m.nextRequest.IsZero() {
			m.nextRequest = again
			m.schedule(now)
		}
		return
	}
	if h.allowAnswer(from, now) && h.limits.induced.AllowN(now, 1) {
		m.search(now)
	}
}

// requestPath requests a path to a member at the member's last place, without labels. If the member
// does not answer there, it searches on all links.
func (m *multicast) requestPath(o *outgoing, now time.Time) {
	if l := o.lastPlace.link; l != nil && l.up && m.host.limits.requests.AllowN(now, 1) {
		l.sendControl(o.lastPlace.mac, 0, o.pathRequest(l))
	}
	if (o.path == nil || o.path.silences >= maxSilences) && now.Sub(m.askedAt) >= minRequestInterval {
		m.search(now)
	}
}

// dropIfLost removes a member so that the others need not wait for it, and reports whether it did.
// It removes a member that has acknowledged nothing for too long, or that has taken nothing over
// for as long as chunks are kept. A member that has never taken anything over, or that takes
// nothing over any more, is also barred for a while.
func (m *multicast) dropIfLost(o *outgoing, late bool, now time.Time) bool {
	reason := ErrLost
	switch {
	case late && now.Sub(o.lastTaken) >= lostAfter && now.Sub(o.lastGiven) >= lostAfter:
		reason = ErrKept
	case !o.hasWork() || now.Sub(o.lastAck) < lostAfter:
		return false
	}
	if reason == ErrKept || o.lastTaken.IsZero() {
		m.bar(o, now)
	}
	o.end(reason)
	return true
}

// barred is a host that is left out: by its instance and by its place, because it may claim to have
// restarted.
type barred struct {
	instance uint64
	at       place
	until    time.Time
}

// bar leaves a host out for a while. If there are too many, the first one is admitted again.
func (m *multicast) bar(o *outgoing, now time.Time) {
	m.barred = slices.DeleteFunc(m.barred, func(b barred) bool { return now.After(b.until) })
	if len(m.barred) >= MaxMembers {
		m.barred = slices.Delete(m.barred, 0, 1)
	}
	m.barred = append(m.barred, barred{o.instance, o.lastPlace, now.Add(barDuration)})
}

// removeMember removes a stream from the members.
func (m *multicast) removeMember(o *outgoing) {
	m.members = slices.DeleteFunc(m.members, func(other *outgoing) bool { return other == o })
	m.askedAt = time.Time{} // if the host still exists, it is found before the next chunk
	if len(m.members) == 0 {
		m.unsettle()
		if len(m.pending) > 0 {
			m.nextRequest = time.Now()
			m.schedule(m.nextRequest)
		}
	}
}
