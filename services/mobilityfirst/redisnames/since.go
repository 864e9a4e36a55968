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
	// slots is the number of hash slots of a Redis Cluster.
	slots = 16384
	// slotBatch is the number of slots that are read together, and maxInSlot the maximum number of
	// names that are read from one.
	slotBatch, maxInSlot = 32, 1 << 14
	// sinceTimeout is how long each batch may take.
	sinceTimeout = 2 * time.Second
)

// Since calls f with the names that were written at time t or later, and when they were, until f
// returns false or ctx ends, which it returns as an error. Names are ordered by the cluster's slots
// and then by name, beginning at from, or with the first if from is zero. Names may be written
// meanwhile; those in a slot that is being moved to another node may be missing. The error wraps
// record.ErrBusy if Redis does not answer.
func (s *Store) Since(ctx context.Context, t time.Time, from frame.GUID, f func(name frame.GUID, written time.Time) bool) error {
	if err := s.state.Load().err; err != nil {
		return err
	}
	slot, first := 0, -1
	if from != (frame.GUID{}) {
		n, err := s.cluster.ClusterKeySlot(ctx, keyOf(from)).Result()
		if err != nil {
			return storeError(err)
		}
		slot = int(min(max(n, 0), slots))
		first = slot
	}
	for ; slot < slots; slot += slotBatch {
		all, err := s.inSlots(ctx, slot, min(slot+slotBatch, slots))
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

// writtenName is a name and the time at which it was written.
type writtenName struct {
	name frame.GUID
	slot int
	at   time.Time
}

// inSlots returns the names in some slots, ordered.
func (s *Store) inSlots(ctx context.Context, from, to int) (all []writtenName, err error) {
	ctx, cancel := context.WithTimeout(ctx, sinceTimeout+s.slack)
	defer cancel()
	p := s.cluster.Pipeline()
	var keys []*redis.StringSliceCmd
	for slot := from; slot < to; slot++ {
		keys = append(keys, p.ClusterGetKeysInSlot(ctx, slot, maxInSlot))
	}
	if _, err := p.Exec(ctx); err != nil {
		return nil, fmt.Errorf("names in slots from %d: %w", from, storeError(err))
	}
	for i, c := range keys {
		begin := len(all)
		for _, key := range c.Val() {
			if name, ok := nameOf(key); ok {
				all = append(all, writtenName{name: name, slot: from + i})
			}
		}
		slices.SortFunc(all[begin:], func(a, b writtenName) int { return bytes.Compare(a.name[:], b.name[:]) })
	}
	return s.stamps(ctx, all)
}

// stamps adds the times at which names were written, and removes names without such a time.
func (s *Store) stamps(ctx context.Context, all []writtenName) ([]writtenName, error) {
	if len(all) == 0 {
		return nil, nil
	}
	p := s.cluster.Pipeline()
	answers := make([]*redis.StringCmd, len(all))
	for i, x := range all {
		answers[i] = p.GetRange(ctx, keyOf(x.name), 0, stampSize-1)
	}
	_, _ = p.Exec(ctx) // each answer has its own error
	there := all[:0]
	for i, x := range all {
		b, err := answers[i].Bytes()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // a value of another program
			return nil, fmt.Errorf("when names were written: %w", storeError(err))
		}
		if len(b) == stampSize {
			x.at = time.Unix(0, int64(be.Uint64(b)))
			there = append(there, x)
		}
	}
	return there, nil
}
