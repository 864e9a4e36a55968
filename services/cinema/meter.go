package cinema

import (
	"context"
	"errors"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// apply installs a channel's rules and groups. A switch that supports no meters gets none;
// there only the ingress gateway limits producers to the channel's rate.
func (tm *treeManager) apply(ctx context.Context, channel string, p network.Program, o network.ApplyOptions) error {
	err := tm.Rules.Apply(ctx, channel, p, o)
	if len(p.Meters) == 0 || !errors.Is(err, network.ErrRefused) {
		return err
	}
	if tm.Rules.Apply(ctx, channel, tree.WithoutMeters(p), o) != nil {
		return err // the refusal has another cause
	}
	tm.mu.Lock()
	defer tm.mu.Unlock()
	for _, m := range p.Meters {
		if !tm.withoutMeters[m.Switch] {
			tm.Log.Info("a switch supports no meters: only ingress gateways limit producers there to their rates", "switch", m.Switch, "error", err)
		}
		tm.withoutMeters[m.Switch] = true
	}
	return nil
}

// meterNumber returns the meter of a channel that enters the network at a switch, or zero if
// the switch supports no meters.
func (tm *treeManager) meterNumber(c *Channel, at openflow.DatapathID) uint32 {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if tm.withoutMeters[at] {
		return 0
	}
	return tree.MeterNumber(c.Number)
}

// retryMeters makes the next installation try meters at a switch again.
func (tm *treeManager) retryMeters(d openflow.DatapathID) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	delete(tm.withoutMeters, d)
}
