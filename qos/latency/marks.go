package latency

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/qos/mark"
)

// markTimeout is how long a class that is being provisioned waits for classifiers to
// learn its mark.
const markTimeout = 2 * time.Second

// withhold takes from queues the marks that the classifier of a bridge has not said it
// knows: nobody would take them off packets again.
func withhold(want map[uint32]ovsdb.Root, now ovsdb.Bridge) {
	for number, root := range want {
		known := ""
		if q := ours(now, number); q != nil {
			known = q.Tags[mark.TagKnown]
		}
		for i, q := range root.Queues {
			e, is, err := mark.Read(q.ID, q.Tags)
			if !is || err != nil || !mark.Knows(known, e) {
				root.Queues[i].Mark = nil
			}
		}
	}
}

// marked says whether a queue's packets are marked, by what the database holds; that is
// not known while it is not connected, or has no such queue.
func (s *Service) marked(at place, queue uint32) (is, known bool, changed <-chan struct{}) {
	b, changed := s.databases.Bridge(uint64(at.Switch))
	if qos := ours(b, at.Port); qos != nil {
		if i := slices.IndexFunc(qos.Queues, func(q ovsdb.Queue) bool { return q.ID == queue }); i >= 0 {
			return qos.Queues[i].Mark != nil, true, changed
		}
	}
	return false, false, changed
}

// awaitMarks waits a moment until a class's packets are marked wherever that is needed.
func (s *Service) awaitMarks(ctx context.Context, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	for {
		s.mu.Lock()
		_, changed := s.unmarkedAt(e)
		s.mu.Unlock()
		if changed == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// unmarkedAt is the first place of a class where its packets need a mark and have none,
// and a channel that is closed when that may be different; nil if there is no such place.
// Where nothing is known now it is as it was. The lock is held.
func (s *Service) unmarkedAt(e *entry) (place, <-chan struct{}) {
	for _, r := range e.routes {
		for _, h := range r.Hops {
			at := portRef(h.Switch, h.Out)
			if !e.userspace[h.Switch] {
				continue
			}
			if is, known, changed := s.marked(at, e.queue); known && !is || !known && e.unmarked == at {
				return at, changed
			}
		}
	}
	return place{}, nil
}

// assess notes whether the packets of a class in the switches are marked wherever that is
// needed, and publishes it if that is new. Without certain it has to be seen twice that
// they are not: a class may just be moving.
func (s *Service) assess(e *entry, certain bool) {
	s.mu.Lock()
	if e.state == StateProvisioning {
		s.mu.Unlock()
		return
	}
	was := e.unmarked
	now, _ := s.unmarkedAt(e)
	if doubt := !certain && was.IsZero() && !now.IsZero() && !e.doubt; doubt {
		e.doubt = true
		s.mu.Unlock()
		return
	}
	e.unmarked, e.doubt = now, false
	e.settle()
	reason := e.reason
	s.mu.Unlock()
	switch {
	case was.IsZero() == now.IsZero():
	case now.IsZero():
		s.publish("effective", map[string]any{"class": e.class.Name, "switch": was.Switch.String(), "port": was.Port})
	default:
		s.log.Warn("a class has no effect", "class", e.class.Name, "switch", now.Switch, "port", now.Port, "reason", reason)
		s.publish("ineffective", map[string]any{"class": e.class.Name, "switch": now.Switch.String(), "port": now.Port, "reason": reason})
	}
}
