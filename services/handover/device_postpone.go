package handover

import (
	"context"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// pathTimeout is how long a request is postponed until the network is known well enough to serve
// the device. A client asks again before it ends.
const pathTimeout = 5 * time.Second

// postpone keeps a DHCP request until a path to its port is known and the device is served as it
// was before the start, and reports whether it did. Shortly after a start links are not yet
// discovered, and a client that gets no answer takes seconds to ask again.
func (s *packetHandler) postpone(in incoming, m *dhcpv4.DHCPv4) bool {
	if m.MessageType() != dhcpv4.MessageTypeRequest || s.now().Sub(in.arrived) > pathTimeout || s.servable(in) {
		return false
	}
	s.awaitingPath.keep(in)
	s.wake() // there may be a path by now
	return true
}

// servable reports whether the network is known well enough to serve the device.
func (s *packetHandler) servable(in incoming) bool { return s.hasPath(in.at) && !s.awaitsPrevious(in) }

// resumePostponed handles the postponed requests that can be served now, or have waited for too
// long.
func (s *packetHandler) resumePostponed() {
	now := s.now()
	for _, in := range s.awaitingPath.takeIf(func(in incoming) bool { return s.servable(in) || now.Sub(in.arrived) > pathTimeout }) {
		s.requeue(in)
	}
}

// requeue queues a message that was kept.
func (s *packetHandler) requeue(in incoming) {
	_, key := s.whose(in.src, in.chaddr)
	if err := s.queue.Add(key, func(ctx context.Context) { s.handleDHCP(ctx, in) }); err != nil {
		s.metrics.dropped.WithLabelValues("waiting").Inc()
	}
}
