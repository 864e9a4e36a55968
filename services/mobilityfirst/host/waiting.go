package host

import "time"

// queuedChunk is a chunk that an endpoint has queued and that no receiver has taken over yet.
type queuedChunk struct {
	endpoint       *Endpoint
	bytes          int
	done           func(error)
	deadline       time.Time
	multicastChunk *multicastChunk // the chunk that it belongs to, if that goes to several hosts
}

// charge counts the chunk as waiting.
func (w *queuedChunk) charge() {
	w.endpoint.queued += w.bytes
	w.endpoint.host.queueLeft -= w.bytes
}

// finish stops counting the chunk as waiting, and reports its result.
func (w *queuedChunk) finish(err error) {
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
	w.endpoint.notifyRoom()
	h.queueLeft += w.bytes
	w.done(err)
}
