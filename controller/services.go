package controller

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
)

// parts returns the controller's parts that services are made from.
func (c *Controller) parts() kit.Parts {
	return kit.Parts{
		Network: c.net, Store: c.store, Bus: c.bus, Log: c.log, Config: c.cfg, Treatments: &c.treatments, Databases: c.databases,
		DialAgent: c.opts.DialAgent, DialNeighbour: c.opts.DialNeighbour,
	}
}

// estimator is a Service that can estimate the bandwidth of links that its promises, which are reserved
// bandwidths, leave free.
type estimator interface {
	// EstimateFree estimates the free capacity of a link in bit/s.
	EstimateFree(network.Link) uint64
}

func (c *Controller) makeServices() error {
	for _, d := range c.opts.Services {
		s, err := d.New(c.parts())
		if err != nil {
			return fmt.Errorf("controller: %s: %w", d.Name, err)
		}
		if s == nil {
			continue
		}
		s.Register(c.api)
		c.api.Await(s.Name(), s.Loaded())
		if e, ok := s.(estimator); ok {
			c.paths.Available = e.EstimateFree
		}
		if r, ok := s.(kit.Reloader); ok {
			c.reloads = append(c.reloads, reloadSection(d.Name, s, r))
		}
		c.services = append(c.services, s)
	}
	return nil
}

// reloadSection returns the prepare function for a service's section.
func reloadSection(key string, s kit.Service, r kit.Reloader) prepare {
	return func(ctx context.Context, next *config.Controller) (func(context.Context) error, error) {
		if err := kit.AwaitLoaded(ctx, s); err != nil {
			return nil, err
		}
		apply, err := r.Reload(ctx, next.Section(key))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		return apply, nil
	}
}
