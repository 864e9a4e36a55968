package tasks

import (
	"context"
	"fmt"
	"time"
)

// pollEvery is the time between two calls of Poll.
const pollEvery = 20 * time.Millisecond

// Poll calls f until it returns nil, for at most within. Its error names what was waited for, and
// wraps the last error of f.
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
