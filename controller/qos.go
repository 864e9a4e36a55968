package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/qos"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/services/qos/subflows"
)

func newQoS(c *Controller) (Service, error) {
	if !c.cfg.QoS.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	book := reserve.New(reserve.UseOf(c.net))
	c.paths.Available = func(l network.Link) uint64 { return book.EstimateFree(l.From) }
	held, err := c.newGuard(book)
	if err != nil {
		return nil, fmt.Errorf("qos: %w", err)
	}
	critical, err := c.newCritical(book, held)
	if err != nil {
		return nil, fmt.Errorf("qos: %w", err)
	}
	classes, err := c.newClasses(book, critical)
	if err != nil {
		return nil, fmt.Errorf("qos: %w", err)
	}
	subflows, err := c.newSubflows(book, held)
	if err != nil {
		return nil, fmt.Errorf("qos: %w", err)
	}
	s := qos.New(book, held, critical, classes, subflows)
	c.net.Subscribe(s.NetworkChanged)
	return s, nil
}

// newGuard makes what holds back those who are promised nothing.
func (c *Controller) newGuard(book *reserve.Book) (*guard.Guard, error) {
	owner, err := c.net.Owner(guard.Owner, network.OwnerOptions{})
	if err != nil {
		return nil, err
	}
	return guard.New(guard.Options{Book: book, Rules: owner, Log: c.log.With("service", guard.Owner), Interval: c.cfg.Network.StatsInterval}), nil
}

// newCritical makes the part of the service that places critical flows.
func (c *Controller) newCritical(book *reserve.Book, held *guard.Guard) (*critical.Service, error) {
	definitions, err := criticalOf(c.cfg)
	if err != nil {
		return nil, err
	}
	var s *critical.Service
	owner, err := c.net.Owner(critical.Owner, network.OwnerOptions{OnRemoved: func(r network.Removed) { s.Removed(r) }})
	if err != nil {
		return nil, err
	}
	s = critical.New(critical.Options{
		Network: c.net, Rules: owner, Store: c.store, Book: book, Guard: held, Log: c.log.With("service", qos.Name), Configured: definitions,
		Publish: c.publishQoS, Interval: c.cfg.Network.StatsInterval,
	})
	c.net.AddHandler(rule.ChainCritical, s)
	reloadDeclared(c, qos.Name, criticalOf, s.Ready(), s.Definitions)
	return s, nil
}

// newClasses makes the part of the service that keeps classes of traffic.
func (c *Controller) newClasses(book *reserve.Book, critical classes.Critical) (*classes.Service, error) {
	owner, err := c.net.Owner(classes.OwnerName, network.OwnerOptions{})
	if err != nil {
		return nil, err
	}
	configured, err := classesOf(c.cfg)
	if err != nil {
		return nil, err
	}
	s := classes.New(classes.Options{
		Network: c.net, Rules: owner, Book: book, Store: c.store, Log: c.log.With("service", classes.OwnerName), Publish: c.publishQoS,
		Databases: c.queues, Critical: critical, Configured: configured, Treatments: &c.treatments,
		Quota: c.cfg.QoS.Quota, Interval: c.cfg.Network.StatsInterval, Settle: 15 * time.Second, OnConnect: c.cfg.QoS.Queues == "connect",
	})
	reloadDeclared(c, qos.Name, classesOf, s.Loaded(), s.Declared)
	return s, nil
}

// newSubflows makes the part of the service that places further subflows of connections.
func (c *Controller) newSubflows(book *reserve.Book, held *guard.Guard) (*subflows.Service, error) {
	var s *subflows.Service
	owner, err := c.net.Owner(subflows.Owner, network.OwnerOptions{OnRemoved: func(r network.Removed) { s.Removed(r) }})
	if err != nil {
		return nil, err
	}
	o := c.cfg.QoS.Subflows
	var sampled subflows.Sampled
	if o.Plain {
		sampled = c.net.Traffic()
	}
	s = subflows.New(subflows.Options{
		Settings: subflows.Settings{Enabled: o.Enabled, DSCP: uint8(o.DSCP), Paths: o.Paths, Most: o.Most, Idle: o.Idle},
		Network:  c.net, Rules: owner, Store: c.store, Book: book, Guard: held, Log: c.log.With("service", subflows.Owner), Publish: c.publishQoS, Interval: c.cfg.Network.StatsInterval, Sampled: sampled,
	})
	c.net.AddHandler(rule.ChainSubflow, s)
	return s, nil
}

// publishQoS publishes an event of the service.
func (c *Controller) publishQoS(kind string, attrs any) { c.bus.Publish(qos.Name+"."+kind, attrs) }

// reloadDeclared has a collection of a service follow what a configuration that is read again
// has for it, once it is loaded.
func reloadDeclared[T any](c *Controller, service string, of func(*config.Controller) (map[string]T, error), loaded <-chan struct{}, to *kit.Collection[T]) {
	c.reloads = append(c.reloads, func(ctx context.Context, next *config.Controller) (func(context.Context) error, error) {
		configured, err := of(next)
		err = errors.Join(err, awaitLoaded(ctx, service, loaded))
		if err == nil {
			err = to.Fits(configured)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", service, err)
		}
		return func(ctx context.Context) error { return to.Configure(ctx, configured) }, nil
	})
}

// criticalOf are the definitions of critical traffic in a configuration.
func criticalOf(c *config.Controller) (map[string]*critical.Definition, error) {
	definitions, faults := c.QoS.Definitions()
	return definitions, faults.Err()
}

// classesOf are the classes of traffic in a configuration.
func classesOf(c *config.Controller) (map[string]*classes.Class, error) {
	classes, faults := c.QoS.ParsedClasses()
	return classes, faults.Err()
}
