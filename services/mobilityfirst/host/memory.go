package host

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// overhead is what a chunk costs beside its payload.
	overhead = hostapi.Overhead
	// maxIncoming is how many streams a host receives at once, an eighth of them from one place.
	maxIncoming = 1024
	// idle is how long a stream may be silent between chunks, and stalled within one. When there is
	// no memory left it is pressing within one, and stalled between.
	idle, stalled, pressing = 5 * time.Minute, 30 * time.Second, 5 * time.Second
	// maxHeld is how many bytes of whole chunks a name may have that it has not taken before another is
	// begun.
	maxHeld = 16 << 20
	// fedAtOnce is how many streams go on when some memory is given back.
	fedAtOnce = 16
)

// memory is what there is for what comes: chunks, and frames that come early.
type memory struct {
	left int
	of   map[place]*account // by source
	// farBytes and farStreams are those of all far hosts, who have half at most.
	farBytes, farStreams int
	// starved are streams that wait for some, the first first.
	starved   []*incoming
	asking    *incoming // the stream that takes some now, nil for none
	reclaimed time.Time
}

// account is what is kept of what has come from one place.
type account struct {
	at             place // the source
	far            bool
	bytes, streams int
	reclaimed      time.Time
}

func (m *memory) init(bytes int) {
	m.left, m.of = bytes, map[place]*account{}
}

// account is that of a place.
func (m *memory) account(at place) *account {
	at = at.source()
	a := m.of[at]
	if a == nil {
		a = &account{at: at, far: at.link.isFar()}
		m.of[at] = a
	}
	return a
}

// stream counts one more stream of an account, or one less.
func (m *memory) stream(a *account, n int) {
	if a.streams += n; a.far {
		m.farStreams += n
	}
}

// share is how much one place may have.
func (h *Host) share() int { return h.Memory / 8 }

// take takes some for what comes from a place, if there is as much.
func (h *Host) take(a *account, bytes int, now time.Time) bool {
	if a.bytes+bytes > h.share() {
		h.reclaim(a, now)
	}
	if bytes > h.memory.left {
		h.reclaim(nil, now)
	}
	if a.bytes+bytes > h.share() || bytes > h.memory.left || a.far && h.memory.farBytes+bytes > h.Memory/2 {
		return false
	}
	h.memory.charge(a, bytes)
	return true
}

// release gives some back.
func (h *Host) release(a *account, bytes int) {
	h.memory.charge(a, -bytes)
	h.memory.settle(a)
}

// charge counts bytes of an account.
func (m *memory) charge(a *account, bytes int) {
	m.left -= bytes
	if a.bytes += bytes; a.far {
		m.farBytes += bytes
	}
}

// settle forgets an account on which there is nothing.
func (m *memory) settle(a *account) {
	if a.bytes == 0 && a.streams == 0 && m.of[a.at] == a {
		delete(m.of, a.at)
	}
}

// reserve takes some for a chunk of a stream, or has the stream wait. Who does not take what has come for
// it gets no more.
func (h *Host) reserve(in *incoming, bytes int, now time.Time) bool {
	h.memory.asking = in
	defer func() { h.memory.asking = nil }()
	if held := in.endpoint.held; (held == 0 || held+bytes <= maxHeld) && h.take(in.account, bytes+overhead, now) {
		return true
	}
	if !in.starved {
		in.starved = true
		h.memory.starved = append(h.memory.starved, in)
	}
	return false
}

// feed has streams go on that have waited for memory, the first first.
func (h *Host) feed() {
	n := min(len(h.memory.starved), fedAtOnce)
	waiting := slices.Clone(h.memory.starved[:n])
	h.memory.starved = slices.Delete(h.memory.starved, 0, n)
	for _, in := range waiting {
		if in.starved = false; !in.left {
			in.resume()
		}
	}
}

// reclaim breaks off streams that have stopped, when others need memory: those from one place, or from
// all; once a second at most.
func (h *Host) reclaim(a *account, now time.Time) {
	last := &h.memory.reclaimed
	if a != nil {
		last = &a.reclaimed
	}
	if now.Sub(*last) < time.Second {
		return
	}
	*last = now
	for _, in := range h.in {
		silent := now.Sub(in.heard)
		if in == h.memory.asking {
			continue
		}
		if a == nil && (silent > stalled || silent > pressing && in.receiver.Reserved() > 0) || a != nil && in.account == a && silent > pressing {
			in.end(frame.ResetAbandoned)
		}
	}
}

// makePlace breaks off the stream that has been silent longest, if there are as many as may be.
func (h *Host) makePlace(now time.Time) bool {
	if len(h.in) < maxIncoming {
		return true
	}
	var oldest *incoming
	for _, in := range h.in {
		if oldest == nil || in.heard.Before(oldest.heard) {
			oldest = in
		}
	}
	if now.Sub(oldest.heard) < pressing {
		return false
	}
	oldest.end(frame.ResetAbandoned)
	return true
}
