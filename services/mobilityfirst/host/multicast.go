package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// MaxMembers is the maximum number of hosts that receive a multicast chunk.
	MaxMembers = 64
	// maxMulticasts limits the multicast destinations at one time, and maxMulticastsPerName those
	// of one name.
	maxMulticasts, maxMulticastsPerName = 256, 64
	// gatherTime is how long further answers are awaited after the first one; the request is
	// repeated half-way.
	gatherTime = 200 * time.Millisecond
	// membersValidFor is how long the list of members is used while nothing is sent.
	membersValidFor = helloInterval
	// lostAfter is how long a host may acknowledge nothing until the others continue without it.
	lostAfter = 5 * time.Second
	// barDuration is how long a host that has taken nothing is left out.
	barDuration = time.Minute
)

// multicast sends chunks to all hosts that have a name ([frame.Multicast]): by a stream to each of
// them, with the same chunks.
type multicast struct {
	streamKey
	host       *Host
	endpoint   *Endpoint // the endpoint of the source name, which may be closed
	members    []*outgoing
	lastMember uint64 // the number of the last member
	pending    []*multicastChunk
	inFlight   int // chunks that members have and that are not finished
	lastUsed   time.Time
	barred     []barred // hosts that are left out for a while

	settled       bool   // the members are known
	id            uint64 // the ID of the request for them
	request       uint64 // the challenge of its answers, zero for none
	attempts      int    // requests since the last answer
	askedAt       time.Time
	answeredAt    time.Time // when the first host has answered
	secondRequest time.Time
	nextRequest   time.Time
	more          bool // more hosts have the name than can be members
	timer         *time.Timer
}

// membership is the part of a stream's state that belongs to a multicast.
type membership struct {
	multicast  *multicast // nil for none
	instance   uint64     // the instance of the member's host
	lastAnswer uint64     // the last request of the multicast that it has answered
	lastPlace  place      // its last place
	lastAck    time.Time  // when it last acknowledged something, or had to for the first time
	lastTaken  time.Time  // when it last took a chunk over
	lastGiven  time.Time  // when it was given a chunk while it had none
}

// multicastChunk is a chunk for all members.
type multicastChunk struct {
	queuedChunk
	multicast *multicast
	header    frame.RoutingHeader
	payload   []byte
	hosts     int   // the number of hosts that it is sent to
	pending   int   // hosts whose result is pending
	missing   int   // hosts that have not taken it over
	reason    error // the error of the first of these
	more      bool  // more hosts have the name
}

// checkServices returns an error if the services of a chunk cannot be combined.
func checkServices(service frame.Service) error {
	if service&frame.Multicast != 0 && service != frame.Multicast {
		return fmt.Errorf("services %#04x: %w", uint16(service), ErrService)
	}
	return nil
}

// pushAll queues a chunk for all hosts that have a name.
func (e *Endpoint) pushAll(w queuedChunk, header frame.RoutingHeader, payload []byte, now time.Time) error {
	m, err := e.multicastTo(header.Destination.GUID)
	if err != nil {
		return err
	}
	w.bytes = len(payload) + overhead
	w.charge()
	m.push(&multicastChunk{queuedChunk: w, multicast: m, header: header, payload: payload}, now)
	return nil
}

// multicastTo returns the multicast to a name, and creates it if there is none.
func (e *Endpoint) multicastTo(to frame.GUID) (*multicast, error) {
	h := e.host
	key := streamKey{from: e.Name, to: to}
	if m := h.multicasts[key]; m != nil {
		return m, nil
	}
	each := 0
	for _, m := range h.multicasts {
		if m.from == e.Name {
			each++
		}
	}
	for _, m := range h.multicasts {
		if (each >= maxMulticastsPerName && m.from == e.Name || each < maxMulticastsPerName && len(h.multicasts) >= maxMulticasts) && !m.hasWork() {
			m.forget()
			return e.newMulticast(key), nil
		}
	}
	if each >= maxMulticastsPerName || len(h.multicasts) >= maxMulticasts {
		return nil, fmt.Errorf("names to all of whose hosts chunks go, %d of one name, %d in all: %w", maxMulticastsPerName, maxMulticasts, ErrTooMany)
	}
	return e.newMulticast(key), nil
}

func (e *Endpoint) newMulticast(key streamKey) *multicast {
	m := &multicast{streamKey: key, host: e.host, endpoint: e}
	e.host.multicasts[key] = m
	return m
}

// hasWork reports whether there are chunks to send.
func (m *multicast) hasWork() bool { return len(m.pending) > 0 || m.inFlight > 0 }

// active reports whether there are chunks to send, or were a short time ago.
func (m *multicast) active(now time.Time) bool {
	return m.hasWork() || now.Sub(m.lastUsed) <= membersValidFor
}

// push gives a chunk to the members, or lets it wait until the members are known.
func (m *multicast) push(c *multicastChunk, now time.Time) {
	if !m.hasWork() && now.Sub(m.askedAt) > membersValidFor {
		m.unsettle()
	}
	m.lastUsed = now
	if m.settled {
		m.queue(c, now)
	} else if m.pending = append(m.pending, c); m.nextRequest.IsZero() && m.answeredAt.IsZero() {
		m.search(now)
	}
	m.schedule(now)
}

// unsettle makes the next chunk search for the members again.
func (m *multicast) unsettle() {
	delete(m.host.searches, m.request)
	m.settled, m.request, m.attempts, m.answeredAt, m.secondRequest, m.nextRequest = false, 0, 0, time.Time{}, time.Time{}, time.Time{}
}

// queue gives a chunk to all members. It charges overhead bytes for each member.
func (m *multicast) queue(c *multicastChunk, now time.Time) {
	c.hosts, c.pending, c.more = len(m.members), len(m.members), m.more
	m.host.queueLeft -= c.hosts * overhead
	m.inFlight++
	for _, o := range slices.Clone(m.members) {
		if !o.hasWork() {
			o.lastAck, o.lastGiven = now, now
		}
		if err := o.queue(queuedChunk{endpoint: c.endpoint, deadline: c.deadline, multicastChunk: c}, c.header, c.payload, now); err != nil {
			c.done(err)
			continue
		}
		o.proceed(now)
	}
}

// done records the result of the chunk at one member.
func (c *multicastChunk) done(err error) {
	if err != nil {
		if c.missing++; c.reason == nil {
			c.reason = cmp.Or(errors.Unwrap(err), err)
		}
	}
	if c.pending--; c.pending > 0 {
		return
	}
	m := c.multicast
	m.inFlight--
	m.host.queueLeft += c.hosts * overhead
	switch {
	case c.missing > 0:
		err = fmt.Errorf("chunk to %v: %d of %d hosts have not taken it: %w", m.to, c.missing, c.hosts, c.reason)
	case c.more:
		err = fmt.Errorf("chunk to %v: %d hosts have taken it, and others have the name: %w", m.to, c.hosts, ErrTooMany)
	}
	c.finish(err)
}

// dropLate gives up chunks that have waited for members beyond their deadline.
func (m *multicast) dropLate(now time.Time) {
	for len(m.pending) > 0 && !now.Before(m.pending[0].deadline) {
		m.dropFirst(ErrKept)
	}
}

// dropFirst gives up the first chunk that waits for members.
func (m *multicast) dropFirst(err error) {
	c := m.pending[0]
	m.pending[0] = nil
	m.pending = m.pending[1:]
	c.finish(fmt.Errorf("chunk to %v, which no host has: %w", m.to, err))
}

// wake handles the events whose time has come.
func (m *multicast) wake() {
	h := m.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.multicasts[m.streamKey] != m || h.ended {
		return
	}
	now := time.Now()
	m.dropLate(now)
	if isDue(m.secondRequest, now) {
		m.secondRequest = time.Time{}
		m.sendRequests(now)
		m.requestMembers()
	}
	if !m.settled && !m.answeredAt.IsZero() && !now.Before(m.answeredAt.Add(gatherTime)) {
		m.settle(now)
	}
	if isDue(m.nextRequest, now) {
		if m.nextRequest = (time.Time{}); m.active(now) {
			m.search(now)
		}
	}
	if m.settled && m.hasWork() && m.nextRequest.IsZero() && !now.Before(m.renewAt()) {
		m.search(now)
	}
	m.schedule(now)
}

// isDue reports whether t is set and has been reached.
func isDue(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// schedule sets the timer to the next event.
func (m *multicast) schedule(now time.Time) {
	due := []time.Time{m.secondRequest, m.nextRequest}
	if !m.settled && !m.answeredAt.IsZero() {
		due = append(due, m.answeredAt.Add(gatherTime))
	}
	if m.settled && m.hasWork() && m.nextRequest.IsZero() {
		due = append(due, m.renewAt())
	}
	if len(m.pending) > 0 {
		due = append(due, m.pending[0].deadline)
	}
	due = slices.DeleteFunc(due, time.Time.IsZero)
	if m.timer != nil {
		m.timer.Stop()
	}
	if len(due) > 0 {
		m.timer = time.AfterFunc(slices.MinFunc(due, time.Time.Compare).Sub(now), m.wake)
	}
}

// end gives up all chunks and removes the multicast.
func (m *multicast) end(err error) {
	for len(m.pending) > 0 {
		m.dropFirst(err)
	}
	for _, o := range slices.Clone(m.members) {
		o.end(err)
	}
	m.forget()
}

// forget removes the multicast, which has no chunks.
func (m *multicast) forget() {
	for _, o := range slices.Clone(m.members) {
		o.forget()
	}
	m.unsettle()
	if m.timer != nil {
		m.timer.Stop()
	}
	delete(m.host.multicasts, m.streamKey)
}
