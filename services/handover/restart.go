package handover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// quietTime is how long the topology must not have changed before devices get their rules
	// after a restart, unless all links of before are known. With half of the links, paths would
	// be found that differ from those the packets take now.
	quietTime = 400 * time.Millisecond
	// topologyPoll is how often the topology is checked after a start.
	topologyPoll = 20 * time.Millisecond
)

// load reads the registry from the store, applies the configured definitions to it, and restores
// what was in progress between domains. That a device roams must be known before anything is done
// for it.
func (s *Service) load(ctx context.Context) error {
	if err := errors.Join(s.registry.Load(ctx, s.settings.Definitions), s.links.load(ctx)); err != nil || s.domain == nil {
		return err
	}
	return s.domain.Restore(ctx)
}

// restoreRules declares the rules of attached devices in the ledger after a start. Rules that are
// in the switches already are not written again. What the switches have stays until all rules are
// declared, or until no more switches are to be expected; then the ledger removes the rest.
func (s *Service) restoreRules(ctx context.Context) {
	began, tick := time.Now(), time.NewTicker(topologyPoll)
	defer tick.Stop()
	version, since := s.net.Topology().Version, time.Now()
	tried := false
	for time.Since(began) < s.settings.Settle {
		s.packets.resumePostponed()
		waiting := s.withoutRules()
		if len(waiting) == 0 {
			break
		}
		top := s.net.Topology()
		if top.Version != version {
			version, since = top.Version, time.Now()
		}
		if known := !tried && s.links.complete(top); known || time.Since(since) >= quietTime && len(top.Switches) > 0 {
			s.declareAll(ctx, waiting)
			tried, since = true, time.Now()
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	s.change(func() { s.topologySettled = true })
	s.declareAll(ctx, s.withoutRules()) // those that waited for the place where they were before
	left := s.withoutRules()
	if tasks.Sleep(ctx, settling) != nil { // packets are still in flight by rules that are to be removed
		return
	}
	s.rules.Ready()
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	for _, id := range left {
		s.log.Warn("after the start a device could not be served: its switch is not connected, or no path leads to it", "device", id)
	}
	s.log.Info("handover: ready", "devices", len(s.registry.Devices()), "not_served", len(left), "took", time.Since(began).Round(time.Millisecond))
	s.publish("service.ready", map[string]any{"not_served": len(left), "took": Duration(time.Since(began))})
}

// withoutRules returns the attached devices that have no rules.
func (s *Service) withoutRules() []string {
	var out []string
	for _, l := range s.registry.Leases() {
		if l.Attachment == nil || !l.Active(s.now()) {
			continue
		}
		s.mu.Lock()
		m := s.placement.mobiles[l.Device]
		if m == nil || m.state == detached {
			out = append(out, l.Device)
		}
		s.mu.Unlock()
	}
	return out
}

// declareAll declares the rules of devices, several at a time.
func (s *Service) declareAll(ctx context.Context, ids []string) {
	tasks.Each(ids, 64, func(id string) {
		if ctx.Err() != nil {
			return
		}
		err := s.queue.Do(ctx, id, func(ctx context.Context) error { return s.placement.replan(ctx, id, "the controller has started") })
		if err != nil {
			m := s.placement.mobileOf(id)
			s.change(func() { m.err = fmt.Sprint(err) })
		}
	})
}
