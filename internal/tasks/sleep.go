package tasks

import (
	"context"
	"time"
)

// Sleep waits for d. If ctx ends before that, Sleep returns the reason.
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
