package plugin

import (
	"context"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// wayPatience is how long a request waits until the network is known as far as it
// takes to serve the device. Later its client has asked again.
const wayPatience = 5 * time.Second

// postponed says whether a request is kept until there is a way to its port, and the
// device is served as it was: just after a start the links are not known yet, and
// clients that get no answer take seconds to ask again.
func (s *intake) postponed(in incoming, m *dhcpv4.DHCPv4) bool {
	if m.MessageType() != dhcpv4.MessageTypeRequest || s.now().Sub(in.arrived) > wayPatience || s.servable(in) {
		return false
	}
	s.early.keep(in)
	s.wake() // there may be a way since
	return true
}

// servable says whether the network is known as far as it takes.
func (s *intake) servable(in incoming) bool { return s.led(in.at) && !s.returning(in) }

// resumeEarly has the requests handled that have a way now, or have waited for long
// enough.
func (s *intake) resumeEarly() {
	now := s.now()
	for _, in := range s.early.takeIf(func(in incoming) bool { return s.servable(in) || now.Sub(in.arrived) > wayPatience }) {
		s.again(in)
	}
}

// again has a message handled that was kept.
func (s *intake) again(in incoming) {
	_, key := s.whose(in.src, in.chaddr)
	if err := s.queue.Add(key, func(ctx context.Context) { s.dhcpMessage(ctx, in) }); err != nil {
		s.metrics.dropped.WithLabelValues("waiting").Inc()
	}
}
