package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// quiet is for how long the topology must not have changed before devices of
	// before a restart get their rules, unless all links of before are known: with
	// half of them, ways would be found that are not those their packets take now.
	quiet = 400 * time.Millisecond
	// settleTick is how often the topology is looked at.
	settleTick = 20 * time.Millisecond
)

// load reads the registry from the store, puts in what is configured, and takes up
// what was under way between domains: nothing may be done for a device that roams
// before it is known that it does.
func (s *Service) load(ctx context.Context) error {
	if err := errors.Join(s.registry.Load(ctx, s.settings.Definitions), s.links.recall(ctx)); err != nil || s.domain == nil {
		return err
	}
	return s.domain.Restore(ctx)
}

// redeclare brings the rules of attached devices back into the ledger after a
// start. What is in the switches already is not written again, and what the
// switches have stays as it is until all is declared, or until no more switches
// are to be expected. Then the rest is removed.
func (s *Service) redeclare(ctx context.Context) {
	began, tick := time.Now(), time.NewTicker(settleTick)
	defer tick.Stop()
	version, since := s.net.Topology().Version, time.Now()
	tried := false
	for time.Since(began) < s.settings.Settle {
		s.resumeEarly()
		waiting := s.undeclared()
		if len(waiting) == 0 {
			break
		}
		top := s.net.Topology()
		if top.Version != version {
			version, since = top.Version, time.Now()
		}
		if known := !tried && s.links.complete(top); known || time.Since(since) >= quiet && len(top.Switches) > 0 {
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
	s.change(func() { s.settled = true })
	s.declareAll(ctx, s.undeclared()) // those that waited for the place where they were
	left := s.undeclared()
	if tasks.Sleep(ctx, settling) != nil { // packets are on their way by rules that are to be removed
		return
	}
	s.rules.Ready()
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
	for _, id := range left {
		s.log.Warn("after the start a device could not be served: its switch is not connected, or there is no way to it", "device", id)
	}
	s.log.Info("handover: ready", "devices", len(s.registry.Devices()), "not_served", len(left), "took", time.Since(began).Round(time.Millisecond))
	s.publish("service.ready", map[string]any{"not_served": len(left), "took": Duration(time.Since(began))})
}

// undeclared are the attached devices without rules.
func (s *Service) undeclared() []string {
	var out []string
	for _, l := range s.registry.Leases() {
		if l.Attachment == nil || !l.Active(s.now()) {
			continue
		}
		s.mu.Lock()
		m := s.mobiles[l.Device]
		if m == nil || m.state == nowhere {
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
		err := s.queue.Do(ctx, id, func(ctx context.Context) error { return s.replan(ctx, id, "the controller has started") })
		if err != nil {
			m := s.mobileOf(id)
			s.change(func() { m.err = fmt.Sprint(err) })
		}
	})
}
