package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/qos/bandwidth"
	"github.com/sluice-net/sluice/qos/plugin"
	"github.com/sluice-net/sluice/qos/reserve"
)

func newQoS(c *Controller) (Service, error) {
	if !c.cfg.QoS.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	fabric := bandwidth.NewFabric(c.net)
	book := reserve.New(fabric.Use)
	c.paths.Available = func(l network.Link) uint64 { return book.Available(l.From, reserve.Key{}) }
	critical, err := c.newCritical(fabric, book)
	if err != nil {
		return nil, fmt.Errorf("qos: %w", err)
	}
	classes, err := c.newClasses(book, critical)
	if err != nil {
		return nil, fmt.Errorf("qos: %w", err)
	}
	s := plugin.New(book, critical, classes)
	c.net.Subscribe(s.NetworkChanged)
	return s, nil
}

// newCritical makes the part of the service that places critical flows.
func (c *Controller) newCritical(fabric bandwidth.Fabric, book *reserve.Book) (*bandwidth.Service, error) {
	definitions, err := criticalOf(c.cfg)
	if err != nil {
		return nil, err
	}
	var s *bandwidth.Service
	owner, err := c.net.Owner(bandwidth.Owner, network.OwnerOptions{OnRemoved: func(r network.Removed) { s.Removed(r) }})
	if err != nil {
		return nil, err
	}
	s, err = bandwidth.New(bandwidth.Options{
		Fabric: fabric, Rules: owner, Store: c.store, Book: book, Log: c.log.With("service", plugin.Name), Definitions: definitions,
		Publish:  func(kind string, attrs any) { c.bus.Publish(plugin.Name+"."+kind, attrs) },
		Interval: c.cfg.Network.StatsInterval,
	})
	if err != nil {
		return nil, err
	}
	c.net.AddHandler(rule.ChainCritical, s)
	c.reloads = append(c.reloads, func(ctx context.Context, next *config.Controller) (func(context.Context) error, error) {
		definitions, err := criticalOf(next)
		err = errors.Join(err, awaitLoaded(ctx, plugin.Name, s.Ready()))
		if err == nil {
			err = s.Fits(definitions)
		}
		if err != nil {
			return nil, fmt.Errorf("qos: %w", err)
		}
		return func(ctx context.Context) error { return s.Reconfigure(ctx, definitions) }, nil
	})
	return s, nil
}

// criticalOf are the definitions of critical traffic in a configuration.
func criticalOf(c *config.Controller) ([]*bandwidth.Definition, error) {
	definitions, faults := c.QoS.Definitions()
	var err error
	for _, f := range faults {
		err = errors.Join(err, fmt.Errorf("critical.%s: %v: want %s", f.Field, f.Value, f.Want))
	}
	return definitions, err
}
