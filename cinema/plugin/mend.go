package plugin

import (
	"context"
	"slices"

	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/network"
)

// mend has the channels go on that a link carried which is gone: at once, and not when all
// channels are looked at, because somebody's picture stands still.
func (s *Service) mend(from network.PortRef) {
	for _, channel := range s.ways.broken(from) {
		started := s.tasks.Start(func(ctx context.Context) {
			defer s.ways.mended(channel)
			ctx, cancel := context.WithTimeout(ctx, changeTimeout)
			defer cancel()
			_ = s.Channels.Reconcile(ctx, channel) // the channel's trouble says why not
		})
		if !started {
			s.ways.mended(channel)
		}
	}
}

// broken lists the channels that the link carries which leaves by a port, but for those that
// are being mended. Then mended is to be called for each.
func (w *ways) broken(from network.PortRef) (channels []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, l := range w.lines {
		if !l.mending && slices.ContainsFunc(l.applied.Edges, func(e tree.Edge) bool { return e.From == from }) {
			l.mending = true
			channels = append(channels, name)
		}
	}
	return channels
}

func (w *ways) mended(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lines[channel]; l != nil {
		l.mending = false
	}
}
