package hostile

import (
	"context"
	"net"

	"github.com/sluice-net/sluice/internal/tasks"
)

// silent is the number of connections that are silent at the same time.
const silent = 4096

// silence keeps connections open on which it sends nothing. It replaces those that are closed.
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
			_ = tasks.Sleep(ctx, reconnectDelay) // The controller may refuse the connection.
			continue
		}
		held.Do(func() {
			defer func() { <-open }()
			untilClosed(ctx, conn)
		})
	}
}

// untilClosed reads and discards data until the connection is closed or ctx ends.
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
