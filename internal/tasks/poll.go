package tasks

import (
	"context"
	"fmt"
	"time"
)

// pollEvery is the time between two calls of f in Poll.
const pollEvery = 20 * time.Millisecond

// Poll calls f until it returns nil, but no longer than within. If that time passes or ctx ends,
// Poll returns an error that contains what, the description of the awaited condition, and wraps the
// last error of f.
func Poll(ctx context.Context, within time.Duration, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
