package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/handover/plugin"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/pki"
)

func newHandover(c *Controller) (Service, error) {
	if !c.cfg.Handover.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	var s *plugin.Service
	owner, err := c.net.Owner(plugin.Name, network.OwnerOptions{OnRemoved: func(r network.Removed) { s.Removed(r) }})
	if err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	settings, err := handoverSettings(c.cfg)
	if err != nil {
		return nil, err
	}
	for i := range settings.Neighbours {
		n := &settings.Neighbours[i]
		if n.TLS, err = pki.Client(files(c.cfg.Handover.Neighbours[n.Name].TLS), pki.RoleController); err != nil {
			return nil, fmt.Errorf("handover.neighbours.%s.tls: %w", n.Name, err)
		}
	}
	s, err = plugin.New(plugin.Options{
		Network: c.net, Rules: owner, Store: c.store, Bus: c.bus, Log: c.log, Settings: settings, Dial: c.opts.DialNeighbour,
	})
	if err != nil {
		return nil, err
	}
	c.net.AddHandler(rule.ChainHandover, s)
	c.net.Subscribe(s.NetworkChanged)
	c.net.KeepHosts(s.Keeps)
	c.net.AnchorHosts(s)
	c.reloads = append(c.reloads, func(ctx context.Context, next *config.Controller) (func(context.Context) error, error) {
		settings, err := handoverSettings(next)
		if err = errors.Join(err, awaitLoaded(ctx, plugin.Name, s.Loaded())); err != nil {
			return nil, err
		}
		if err := s.Fits(settings.Definitions); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return s.Reconfigure(ctx, settings.Definitions) }, nil
	})
	return s, nil
}

// handoverSettings are those of a configuration.
func handoverSettings(c *config.Controller) (plugin.Settings, error) {
	settings, faults := c.Handover.Settings()
	var err error
	for _, f := range faults {
		err = errors.Join(err, fmt.Errorf("handover.%s: %v: want %s", f.Field, f.Value, f.Want))
	}
	return settings, err
}
