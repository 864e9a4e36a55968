package hostile

import (
	"context"
	"net"

	"github.com/sluice-net/sluice/internal/tasks"
)

// silent is how many connections say nothing at once.
const silent = 4096

// silence keeps connections on which nothing is said. One that is closed is replaced.
func silence(ctx context.Context, t Target) {
	open := make(chan struct{}, silent)
	held := tasks.NewCrew(silent)
	defer held.Wait()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case open <- struct{}{}:
		}
		conn, err := t.Dial(ctx)
		if err != nil {
			<-open
			_ = tasks.Sleep(ctx, again) // refused, as it may be
			continue
		}
		held.Do(func() {
			defer func() { <-open }()
			untilClosed(ctx, conn)
		})
	}
}

// untilClosed reads what is said to it until the connection or ctx ends.
func untilClosed(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	var b [64]byte
	for {
		if _, err := conn.Read(b[:]); err != nil {
			return
		}
	}
}
