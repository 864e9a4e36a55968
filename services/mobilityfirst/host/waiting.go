package host

import "time"

// waiting is a chunk that is not taken.
type waiting struct {
	endpoint *Endpoint
	bytes    int
	done     func(error)
	until    time.Time
	cast     *cast // what it belongs to, if it goes to several hosts
}

// charge counts a chunk that waits until it is taken.
func (w *waiting) charge() {
	w.endpoint.queued += w.bytes
	w.endpoint.host.queueLeft -= w.bytes
}

// settle counts it no more, and says what has become of it.
func (w *waiting) settle(err error) {
	h := w.endpoint.host
	if err == nil {
		h.counters.Taken++
	} else {
		h.counters.NotTaken++
	}
	w.endpoint.queued -= w.bytes
	if w.endpoint.isClosed() {
		h.orphaned -= w.bytes
	}
	w.endpoint.tellRoom()
	h.queueLeft += w.bytes
	w.done(err)
}
