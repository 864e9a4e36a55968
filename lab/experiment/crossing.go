package experiment

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
)

// crossing holds what happened to the packets of one direction of the long link during a
// measurement.
type crossing struct {
	dropped, delivered uint64        // packets that the link's queue has dropped, and that have crossed the link
	queued             time.Duration // mean queueing delay of those that have crossed it
	late               time.Duration // largest lateness of the lab so far
}

// dropShare returns the number of packets that the queue has dropped for each that has crossed the
// link.
func (c crossing) dropShare() float64 { return float64(c.dropped) / float64(max(c.delivered, 1)) }

// crossingOf returns what happened between two readings of a direction's statistics.
func crossingOf(before, after delayline.Stats) crossing {
	c := crossing{dropped: after.Dropped - before.Dropped, delivered: after.DeliveredPackets - before.DeliveredPackets, late: after.LateMax}
	seconds := (after.QueueSeconds - before.QueueSeconds) / float64(max(c.delivered, 1))
	c.queued = time.Duration(seconds * float64(time.Second))
	return c
}

// crossed calls f and returns what meanwhile happened to packets on the long link, upwards from the
// client's side to the server's or downwards. The other direction carries acknowledgements, which
// would hide what the queue of the data does.
func (s *site) crossed(ctx context.Context, upwards bool, f func() error) (c crossing, err error) {
	read := func() (delayline.Stats, error) {
		link, err := s.lab.Link("wan").Stats(ctx)
		if upwards {
			return link.AtoB.Stats, err
		}
		return link.BtoA.Stats, err
	}
	before, err := read()
	if err != nil {
		return c, err
	}
	if err := f(); err != nil {
		return c, err
	}
	after, err := read()
	return crossingOf(before, after), err
}
