package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// staleMedian and staleP99 bound the time from the beginning of a write to the new answer at a
	// cache that has the old one: the write itself, the notification and another look-up.
	staleMedian, staleP99 = 10 * time.Millisecond, 50 * time.Millisecond
	// staleTimeout bounds the wait for one new answer. It is longer than any answer is cached.
	staleTimeout = time.Minute
	// staleEvery is the least time between two writes, half as many a second as the name service
	// takes from one address.
	staleEvery = 2 * time.Millisecond
)

// stale measures how long a cache has an old answer when a name moves.
func (rig *namesRig) stale(ctx context.Context, times int, r *Result) (err error) {
	rig.env.Step("%d moves of a name that a cache has", times)
	writer, err := gnrs.Dial(rig.at)
	if err != nil {
		return err
	}
	defer writer.Close()
	changed := make(chan struct{}, 1)
	cache, err := gnrs.DialCache(rig.at, func(frame.GUID) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer cache.Close()
	var took []float64
	for i := range times {
		if err := tasks.Sleep(ctx, staleEvery); err != nil {
			return err
		}
		d, err := rig.move(ctx, writer, cache, changed, i)
		if err != nil {
			return fmt.Errorf("move %d of a cached name: %w", i+1, err)
		}
		took = append(took, d.Seconds())
	}
	ms := func(q float64) string { return fmt.Sprintf("%.2f", quantile(took, q)*1e3) }
	t := Table{Title: "From a write to the new answer at a cache that has the old one", Columns: []string{"times", "median ms", "p95 ms", "p99 ms"}}
	t.Add(times, ms(0.5), ms(0.95), ms(0.99))
	r.Tables = append(r.Tables, t)
	r.Claim(quantile(took, 0.5) <= staleMedian.Seconds() && quantile(took, 0.99) <= staleP99.Seconds(), fmt.Sprintf("a cache has the new place of a name within %v of the write at the median, %v at the 99th percentile", staleMedian, staleP99), "%s and %s ms", ms(0.5), ms(0.99))
	return nil
}

// move writes another place of a cached name, and returns the time from the beginning of the write
// to the new answer of the cache.
func (rig *namesRig) move(ctx context.Context, writer *gnrs.Client, cache *gnrs.Cache, changed <-chan struct{}, i int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, staleTimeout)
	defer cancel()
	old, err := cache.Lookup(ctx, rig.names[0])
	if err != nil {
		return 0, err
	}
	now := time.Now()
	r, err := record.Sign(rig.key(0), uint64(now.UnixNano()), now.Add(time.Hour), place(i))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := writer.Write(ctx, r); err != nil {
		return 0, err
	}
	for {
		got, err := cache.Lookup(ctx, rig.names[0])
		switch {
		case err != nil:
			return 0, err
		case got.Number == r.Number:
			return time.Since(began), nil
		case got.Number != old.Number:
			return 0, errors.New("the cache has a record that nobody has written")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("the cache has the old place: %w", context.Cause(ctx))
		}
	}
}
