package plugin

import (
	"context"
	"errors"

	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// write brings a channel's program into the switches. A switch that takes no meters has none:
// there the ingress gateway alone holds producers to what channels may send.
func (w *ways) write(ctx context.Context, channel string, p network.Program, o network.ApplyOptions) error {
	err := w.Rules.Apply(ctx, channel, p, o)
	if len(p.Meters) == 0 || !errors.Is(err, network.ErrRefused) {
		return err
	}
	if w.Rules.Apply(ctx, channel, tree.Unmetered(p), o) != nil {
		return err // it is not the meters
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range p.Meters {
		if !w.unmetered[m.Switch] {
			w.Log.Info("a switch takes no meters: what producers send there is held to its rate by ingress gateways alone", "switch", m.Switch, "error", err)
		}
		w.unmetered[m.Switch] = true
	}
	return nil
}

// meter is the number of the meter of a channel that comes in at a switch; zero if that has none.
func (w *ways) meter(c *Channel, at openflow.DatapathID) uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unmetered[at] {
		return 0
	}
	return tree.MeterNumber(c.Number)
}

// remeter has a switch be asked again whether it takes meters.
func (w *ways) remeter(d openflow.DatapathID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.unmetered, d)
}
