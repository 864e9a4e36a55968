package cinema

import (
	"context"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// repairChannels reroutes the channels of a link that has gone down. It does not wait for the
// next round over all channels, because viewers' pictures stand still.
func (s *Service) repairChannels(from network.PortRef) {
	for _, channel := range s.trees.startRepairs(from) {
		started := s.tasks.Start(func(ctx context.Context) {
			defer s.trees.repairDone(channel)
			ctx, cancel := context.WithTimeout(ctx, changeTimeout)
			defer cancel()
			_ = s.Channels.Reconcile(ctx, channel) // the channel's condition has the error
		})
		if !started {
			s.trees.repairDone(channel)
		}
	}
}

// startRepairs returns the channels whose trees use the link that leaves by a port, except
// those under repair already. The caller calls repairDone for each of them.
func (tm *treeManager) startRepairs(from network.PortRef) (channels []string) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	for name, cs := range tm.states {
		if !cs.repairing && slices.ContainsFunc(cs.applied.Edges, func(e tree.Edge) bool { return e.From == from }) {
			cs.repairing = true
			channels = append(channels, name)
		}
	}
	return channels
}

func (tm *treeManager) repairDone(channel string) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if cs := tm.states[channel]; cs != nil {
		cs.repairing = false
	}
}
