package redisnames

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// slots are the parts of a Redis Cluster's keys.
	slots = 16384
	// slotsTogether are asked for their names together, and maxInSlot is how many of one are told.
	slotsTogether, maxInSlot = 32, 1 << 14
	// sinceWithin is how long each time may take.
	sinceWithin = 2 * time.Second
)

// Since gives f the names that were written from a time on, and when, until f returns false or ctx ends, of which the error
// tells: by the cluster's slots, in each by name, from one of them on, or from the first if that is zero. Names may be written
// meanwhile; those of a slot that is being moved to another node may be left out. The error wraps record.ErrBusy where Redis does
// not answer.
func (s *Store) Since(ctx context.Context, t time.Time, from frame.GUID, f func(name frame.GUID, written time.Time) bool) error {
	if err := s.state.Load().err; err != nil {
		return err
	}
	slot, first := 0, -1
	if from != (frame.GUID{}) {
		n, err := s.cluster.ClusterKeySlot(ctx, keyOf(from)).Result()
		if err != nil {
			return told(err)
		}
		slot = int(min(max(n, 0), slots))
		first = slot
	}
	for ; slot < slots; slot += slotsTogether {
		all, err := s.inSlots(ctx, slot, min(slot+slotsTogether, slots))
		if err != nil {
			return err
		}
		for _, x := range all {
			if x.slot == first && bytes.Compare(x.name[:], from[:]) < 0 || x.at.Before(t.Truncate(time.Second)) {
				continue
			}
			if !f(x.name, x.at) {
				return nil
			}
		}
	}
	return nil
}

// written says when a name was.
type written struct {
	name frame.GUID
	slot int
	at   time.Time
}

// inSlots are the names of some slots, in their order.
func (s *Store) inSlots(ctx context.Context, from, to int) (all []written, err error) {
	ctx, cancel := context.WithTimeout(ctx, sinceWithin+s.slack)
	defer cancel()
	p := s.cluster.Pipeline()
	var keys []*redis.StringSliceCmd
	for slot := from; slot < to; slot++ {
		keys = append(keys, p.ClusterGetKeysInSlot(ctx, slot, maxInSlot))
	}
	if _, err := p.Exec(ctx); err != nil {
		return nil, fmt.Errorf("names in slots from %d: %w", from, told(err))
	}
	for i, c := range keys {
		begin := len(all)
		for _, key := range c.Val() {
			if name, is := nameOf(key); is {
				all = append(all, written{name: name, slot: from + i})
			}
		}
		slices.SortFunc(all[begin:], func(a, b written) int { return bytes.Compare(a.name[:], b.name[:]) })
	}
	return s.stamps(ctx, all)
}

// stamps adds when names were written, and leaves out what has none.
func (s *Store) stamps(ctx context.Context, all []written) ([]written, error) {
	if len(all) == 0 {
		return nil, nil
	}
	p := s.cluster.Pipeline()
	answers := make([]*redis.StringCmd, len(all))
	for i, x := range all {
		answers[i] = p.GetRange(ctx, keyOf(x.name), 0, stamp-1)
	}
	_, _ = p.Exec(ctx) // each answer has its error
	there := all[:0]
	for i, x := range all {
		b, err := answers[i].Bytes()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // which somebody else has put there
			return nil, fmt.Errorf("when names were written: %w", told(err))
		}
		if len(b) == stamp {
			x.at = time.Unix(0, int64(be.Uint64(b)))
			there = append(there, x)
		}
	}
	return there, nil
}
