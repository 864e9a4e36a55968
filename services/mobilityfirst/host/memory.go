package host

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// overhead is the cost of a chunk in bytes beside its payload.
	overhead = hostapi.Overhead
	// maxIncoming limits the streams that a host receives at once; an eighth of them may come from
	// one place.
	maxIncoming = 1024
	// idleTimeout is how long a stream may be silent between chunks, and stalledTimeout how long
	// within a chunk. When memory runs out, the limits are stalledTimeout between chunks and
	// pressureTimeout within one.
	idleTimeout, stalledTimeout, pressureTimeout = 5 * time.Minute, 30 * time.Second, 5 * time.Second
	// maxUntaken limits the bytes of complete chunks that a name has not taken over when another
	// chunk begins.
	maxUntaken = 16 << 20
	// maxResumed limits the streams that are resumed when memory is released.
	maxResumed = 16
)

// memory accounts for the memory for received chunks and for frames received out of order.
type memory struct {
	left     int
	accounts map[place]*account // by place.source
	// farBytes and farStreams are the sums over all far hosts, which together may use at most half
	// of the memory and of the streams.
	farBytes, farStreams int
	// waiting lists the streams that wait for memory, in the order in which they began to wait.
	waiting   []*incoming
	reserving *incoming // the stream that reserves memory now, nil for none
	reclaimed time.Time
}

// account counts the memory and streams of one place.
type account struct {
	at             place // the result of place.source
	far            bool
	bytes, streams int
	reclaimed      time.Time
}

func (m *memory) init(bytes int) {
	m.left, m.accounts = bytes, map[place]*account{}
}

// account returns the account of a place, and creates it if there is none.
func (m *memory) account(at place) *account {
	at = at.source()
	a := m.accounts[at]
	if a == nil {
		a = &account{at: at, far: at.link.isFar()}
		m.accounts[at] = a
	}
	return a
}

// countStream adds n to the number of an account's streams.
func (m *memory) countStream(a *account, n int) {
	if a.streams += n; a.far {
		m.farStreams += n
	}
}

// share returns the number of bytes that one place may use.
func (h *Host) share() int { return h.Memory / 8 }

// allocate allocates memory for input from a place, and reports whether there was enough.
func (h *Host) allocate(a *account, bytes int, now time.Time) bool {
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

// release releases memory.
func (h *Host) release(a *account, bytes int) {
	h.memory.charge(a, -bytes)
	h.memory.removeIfEmpty(a)
}

// charge adds bytes to an account.
func (m *memory) charge(a *account, bytes int) {
	m.left -= bytes
	if a.bytes += bytes; a.far {
		m.farBytes += bytes
	}
}

// removeIfEmpty removes an account without memory and streams.
func (m *memory) removeIfEmpty(a *account) {
	if a.bytes == 0 && a.streams == 0 && m.accounts[a.at] == a {
		delete(m.accounts, a.at)
	}
}

// reserve reserves memory for a chunk of a stream, or lets the stream wait. A name that does not
// take its chunks gets no memory for more.
func (h *Host) reserve(in *incoming, bytes int, now time.Time) bool {
	h.memory.reserving = in
	defer func() { h.memory.reserving = nil }()
	if held := in.endpoint.untakenBytes; (held == 0 || held+bytes <= maxUntaken) && h.allocate(in.account, bytes+overhead, now) {
		return true
	}
	if !in.waiting {
		in.waiting = true
		h.memory.waiting = append(h.memory.waiting, in)
	}
	return false
}

// resumeWaiting resumes streams that have waited for memory, in the order in which they began to
// wait.
func (h *Host) resumeWaiting() {
	n := min(len(h.memory.waiting), maxResumed)
	waiting := slices.Clone(h.memory.waiting[:n])
	h.memory.waiting = slices.Delete(h.memory.waiting, 0, n)
	for _, in := range waiting {
		if in.waiting = false; !in.closed {
			in.resume()
		}
	}
}

// reclaim ends stalled streams to free memory for others: the streams of account a, or of all
// accounts if a is nil. It acts at most once a second for each account, and once a second for all.
func (h *Host) reclaim(a *account, now time.Time) {
	last := &h.memory.reclaimed
	if a != nil {
		last = &a.reclaimed
	}
	if now.Sub(*last) < time.Second {
		return
	}
	*last = now
	for _, in := range h.incoming {
		silent := now.Sub(in.lastProgress)
		if in == h.memory.reserving {
			continue
		}
		if a == nil && (silent > stalledTimeout || silent > pressureTimeout && in.receiver.Reserved() > 0) || a != nil && in.account == a && silent > pressureTimeout {
			in.end(frame.ResetAbandoned)
		}
	}
}

// makeRoom makes room for one more stream, and reports whether there is room. If there are
// maxIncoming streams, it ends the one that has been silent longest, unless that one has been
// silent for less than pressureTimeout.
func (h *Host) makeRoom(now time.Time) bool {
	if len(h.incoming) < maxIncoming {
		return true
	}
	var oldest *incoming
	for _, in := range h.incoming {
		if oldest == nil || in.lastProgress.Before(oldest.lastProgress) {
			oldest = in
		}
	}
	if now.Sub(oldest.lastProgress) < pressureTimeout {
		return false
	}
	oldest.end(frame.ResetAbandoned)
	return true
}
