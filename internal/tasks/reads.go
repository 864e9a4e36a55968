package tasks

import (
	"context"
	"time"
)

// InterruptReads has a read from a file or connection that waits end when ctx does, with
// os.ErrDeadlineExceeded, until release is called: then it can be read from again, and has no
// deadline if ctx has ended.
func InterruptReads(ctx context.Context, from interface{ SetReadDeadline(time.Time) error }) (release func()) {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = from.SetReadDeadline(time.Unix(1, 0)) // fails if it is closed, where nobody waits
	})
	return func() {
		if !stop() {
			<-fired
			_ = from.SetReadDeadline(time.Time{}) // as above
		}
	}
}
