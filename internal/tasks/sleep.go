package tasks

import (
	"context"
	"time"
)

// Sleep waits for so long, or returns why the context ended before that.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
