package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/handover"
)

func newHandover(c *Controller) (Service, error) {
	if !c.cfg.Handover.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	var s *handover.Service
	owner, err := c.net.Owner(handover.Name, network.OwnerOptions{OnRemoved: func(r network.Removed) { s.Removed(r) }})
	if err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	settings, faults := c.cfg.Handover.Settings()
	if err := faults.Below(handover.Name).Err(); err != nil {
		return nil, err
	}
	for i := range settings.Neighbours {
		n := &settings.Neighbours[i]
		if n.TLS, err = pki.Client(c.cfg.Handover.Neighbours[n.Name].TLS.Files(), pki.RoleController); err != nil {
			return nil, fmt.Errorf("handover.neighbours.%s.tls: %w", n.Name, err)
		}
	}
	s, err = handover.New(handover.Options{
		Network: c.net, Rules: owner, Store: c.store, Bus: c.bus, Log: c.log, Settings: settings, Dial: c.opts.DialNeighbour,
	})
	if err != nil {
		return nil, err
	}
	c.net.AddHandler(rule.ChainHandover, s)
	c.net.Subscribe(s.NetworkChanged)
	c.net.AnchorHosts(s)
	c.reloads = append(c.reloads, func(ctx context.Context, next *config.Controller) (func(context.Context) error, error) {
		settings, faults := next.Handover.Settings()
		err := errors.Join(faults.Below(handover.Name).Err(), awaitLoaded(ctx, handover.Name, s.Loaded()))
		if err == nil {
			err = s.Fits(settings.Definitions)
		}
		return func(ctx context.Context) error { return s.Reconfigure(ctx, settings.Definitions) }, err
	})
	return s, nil
}
