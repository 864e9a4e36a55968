package tasks

import (
	"context"
	"time"
)

// InterruptReads makes reads from a file or connection fail with os.ErrDeadlineExceeded once ctx
// has ended. The caller must call release afterwards. If ctx has ended by then, release removes the
// read deadline, so that reads work again.
func InterruptReads(ctx context.Context, from interface{ SetReadDeadline(time.Time) error }) (release func()) {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = from.SetReadDeadline(time.Unix(1, 0)) // fails only if it is closed; then nobody waits
	})
	return func() {
		if !stop() {
			<-fired
			_ = from.SetReadDeadline(time.Time{}) // fails only if it is closed
		}
	}
}
