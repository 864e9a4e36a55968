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
	// MaxMembers is to how many hosts that have a name a chunk goes at most.
	MaxMembers = 64
	// maxMulticasts is how many names there are at once to all of whose hosts something goes, maxMulticastsEach of one
	// name's.
	maxMulticasts, maxMulticastsEach = 256, 64
	// gather is how long after the first answer others are waited for; half-way it is asked again.
	gather = 200 * time.Millisecond
	// freshFor is how long it is believed who has a name while nothing is sent there.
	freshFor = helloEvery
	// lostAfter is for how long a host may acknowledge nothing until the others go on without it.
	lostAfter = 5 * time.Second
	// barredFor is for how long one that has taken nothing is left out.
	barredFor = time.Minute
)

// multicast is what goes to all hosts that have a name ([frame.Multicast]): a stream to each, with the same chunks.
type multicast struct {
	way
	host     *Host
	endpoint *Endpoint // that has the name from which it comes, also when it is closed
	members  []*outgoing
	made     uint64 // the number of the last member
	pending  []*cast
	underway int // chunks that members have, and that are not done
	used     time.Time
	barred   []barred // hosts that are left out for a while

	settled   bool   // it is known who the members are
	id        uint64 // of the request for them
	request   uint64 // what its answers answer to, zero for none
	asks      int    // since somebody has answered
	asked     time.Time
	answered  time.Time // when the first has answered
	secondAsk time.Time
	nextAsk   time.Time
	more      bool // others have the name than can be members
	timer     *time.Timer
}

// membership is what a stream has that is one of a multicast's.
type membership struct {
	of       *multicast // nil for none
	instance uint64     // of the member's host
	found    uint64     // the last request of of that it has answered
	last     place      // where it was last
	heardAt  time.Time  // when it has acknowledged something, or was to for the first time
	tookAt   time.Time  // when it had acknowledged the last that it has taken
	givenAt  time.Time  // when it was given something while it had nothing to take
}

// cast is a chunk to all members.
type cast struct {
	waiting
	multicast *multicast
	header    frame.RoutingHeader
	payload   []byte
	hosts     int   // that get it
	left      int   // of which it is not known yet what has become of it
	missing   int   // that have not taken it
	reason    error // of the first of these
	more      bool  // others have the name
}

// goTogether says why a chunk can't have the services that it has; nil if it can.
func goTogether(service frame.Service) error {
	if service&frame.Multicast != 0 && service != frame.Multicast {
		return fmt.Errorf("services %#04x: %w", uint16(service), ErrService)
	}
	return nil
}

// pushAll queues a chunk for all hosts that have a name.
func (e *Endpoint) pushAll(w waiting, header frame.RoutingHeader, payload []byte, now time.Time) error {
	m, err := e.multicastTo(header.Destination.GUID)
	if err != nil {
		return err
	}
	w.bytes = len(payload) + overhead
	w.charge()
	m.push(&cast{waiting: w, multicast: m, header: header, payload: payload}, now)
	return nil
}

// multicastTo is that to a name, a new one if there is none.
func (e *Endpoint) multicastTo(to frame.GUID) (*multicast, error) {
	h := e.host
	key := way{from: e.Name, to: to}
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
		if (each >= maxMulticastsEach && m.from == e.Name || each < maxMulticastsEach && len(h.multicasts) >= maxMulticasts) && !m.wanted() {
			m.forget()
			return e.newMulticast(key), nil
		}
	}
	if each >= maxMulticastsEach || len(h.multicasts) >= maxMulticasts {
		return nil, fmt.Errorf("names to all of whose hosts chunks go, %d of one name, %d in all: %w", maxMulticastsEach, maxMulticasts, ErrTooMany)
	}
	return e.newMulticast(key), nil
}

func (e *Endpoint) newMulticast(key way) *multicast {
	m := &multicast{way: key, host: e.host, endpoint: e}
	e.host.multicasts[key] = m
	return m
}

// wanted says whether there is something to send.
func (m *multicast) wanted() bool { return len(m.pending) > 0 || m.underway > 0 }

// active says whether there is, or was just now.
func (m *multicast) active(now time.Time) bool { return m.wanted() || now.Sub(m.used) <= freshFor }

// push gives a chunk to the members, or has it wait until it is known who they are.
func (m *multicast) push(c *cast, now time.Time) {
	if !m.wanted() && now.Sub(m.asked) > freshFor {
		m.unsettle()
	}
	m.used = now
	if m.settled {
		m.give(c, now)
	} else if m.pending = append(m.pending, c); m.nextAsk.IsZero() && m.answered.IsZero() {
		m.search(now)
	}
	m.schedule(now)
}

// unsettle has it be found out anew who the members are.
func (m *multicast) unsettle() {
	delete(m.host.searches, m.request)
	m.settled, m.request, m.asks, m.answered, m.secondAsk, m.nextAsk = false, 0, 0, time.Time{}, time.Time{}, time.Time{}
}

// give gives a chunk to all members, each of which costs overhead.
func (m *multicast) give(c *cast, now time.Time) {
	c.hosts, c.left, c.more = len(m.members), len(m.members), m.more
	m.host.queueLeft -= c.hosts * overhead
	m.underway++
	for _, o := range slices.Clone(m.members) {
		if !o.wanted() {
			o.heardAt, o.givenAt = now, now
		}
		if err := o.queue(waiting{endpoint: c.endpoint, until: c.until, cast: c}, c.header, c.payload, now); err != nil {
			c.hear(err)
			continue
		}
		o.move(now)
	}
}

// hear takes what has become of the chunk at one member.
func (c *cast) hear(err error) {
	if err != nil {
		if c.missing++; c.reason == nil {
			c.reason = cmp.Or(errors.Unwrap(err), err)
		}
	}
	if c.left--; c.left > 0 {
		return
	}
	m := c.multicast
	m.underway--
	m.host.queueLeft += c.hosts * overhead
	switch {
	case c.missing > 0:
		err = fmt.Errorf("chunk to %v: %d of %d hosts have not taken it: %w", m.to, c.missing, c.hosts, c.reason)
	case c.more:
		err = fmt.Errorf("chunk to %v: %d hosts have taken it, and others have the name: %w", m.to, c.hosts, ErrTooMany)
	}
	c.settle(err)
}

// late gives up chunks that have waited for members until their time was over.
func (m *multicast) late(now time.Time) {
	for len(m.pending) > 0 && !now.Before(m.pending[0].until) {
		m.drop(ErrKept)
	}
}

// drop gives up the first chunk that waits for members.
func (m *multicast) drop(err error) {
	c := m.pending[0]
	m.pending[0] = nil
	m.pending = m.pending[1:]
	c.settle(fmt.Errorf("chunk to %v, which no host has: %w", m.to, err))
}

// wake does what is due.
func (m *multicast) wake() {
	h := m.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.multicasts[m.way] != m || h.ended {
		return
	}
	now := time.Now()
	m.late(now)
	if isDue(m.secondAsk, now) {
		m.secondAsk = time.Time{}
		m.tell(now)
		m.tellKnown()
	}
	if !m.settled && !m.answered.IsZero() && !now.Before(m.answered.Add(gather)) {
		m.settle(now)
	}
	if isDue(m.nextAsk, now) {
		if m.nextAsk = (time.Time{}); m.active(now) {
			m.search(now)
		}
	}
	if m.settled && m.wanted() && m.nextAsk.IsZero() && !now.Before(m.renew()) {
		m.search(now)
	}
	m.schedule(now)
}

// isDue says whether something that is to be done at a time is to be done now.
func isDue(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// schedule sets the timer to what has to be done next.
func (m *multicast) schedule(now time.Time) {
	due := []time.Time{m.secondAsk, m.nextAsk}
	if !m.settled && !m.answered.IsZero() {
		due = append(due, m.answered.Add(gather))
	}
	if m.settled && m.wanted() && m.nextAsk.IsZero() {
		due = append(due, m.renew())
	}
	if len(m.pending) > 0 {
		due = append(due, m.pending[0].until)
	}
	due = slices.DeleteFunc(due, time.Time.IsZero)
	if m.timer != nil {
		m.timer.Stop()
	}
	if len(due) > 0 {
		m.timer = time.AfterFunc(slices.MinFunc(due, time.Time.Compare).Sub(now), m.wake)
	}
}

// end gives everything up.
func (m *multicast) end(err error) {
	for len(m.pending) > 0 {
		m.drop(err)
	}
	for _, o := range slices.Clone(m.members) {
		o.end(err)
	}
	m.forget()
}

// forget forgets the multicast, to which no chunk belongs.
func (m *multicast) forget() {
	for _, o := range slices.Clone(m.members) {
		o.forget()
	}
	m.unsettle()
	if m.timer != nil {
		m.timer.Stop()
	}
	delete(m.host.multicasts, m.way)
}
