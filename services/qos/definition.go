package qos

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/services/qos/subflows"
)

// classSettle is the time after a start for which classes keep their routes, until the switches on
// them have connected.
const classSettle = 15 * time.Second

// Definition describes the service to the controller.
func Definition() kit.Definition {
	return kit.Definition{
		Name: Name, Doc: "The QoS service: bandwidth and latency that hold.",
		Section: func() config.Section { return DefaultSection() },
		New:     fromParts,
	}
}

// assembly makes the parts of the service from the controller's parts.
type assembly struct {
	parts   kit.Parts
	section *Section
	book    *reserve.Book
	guard   *guard.Guard
}

// fromParts makes the service according to the controller's configuration. It returns nil if the
// service is disabled.
func fromParts(p kit.Parts) (kit.Service, error) {
	section := config.Of[*Section](p.Config)
	queues, err := p.Databases.Owner(classes.DatabaseOwner)
	if err != nil {
		return nil, fmt.Errorf("register the queues: %w", err)
	}
	if !section.Enabled {
		queues.Declare(ovsdb.Nothing) // an earlier start may have left some
		return nil, nil               //nolint:nilnil // left out by configuration
	}
	a := &assembly{parts: p, section: section, book: reserve.New(reserve.UseOf(p.Network))}
	if err := a.makeGuard(); err != nil {
		return nil, err
	}
	criticalFlows, err := a.newCritical()
	if err != nil {
		return nil, err
	}
	classesOfTraffic, err := a.newClasses(queues, criticalFlows)
	if err != nil {
		return nil, err
	}
	furtherSubflows, err := a.newSubflows()
	if err != nil {
		return nil, err
	}
	s := New(a.book, a.guard, criticalFlows, classesOfTraffic, furtherSubflows)
	s.definitions, s.classes = criticalFlows.Definitions, classesOfTraffic.Declared
	p.Network.Subscribe(s.NetworkChanged)
	return s, nil
}

// makeGuard makes the guard, which limits traffic without a promise to the bandwidth that promises
// leave.
func (a *assembly) makeGuard() error {
	owner, err := a.parts.Network.Owner(guard.Owner, network.OwnerOptions{})
	if err != nil {
		return fmt.Errorf("register the rules: %w", err)
	}
	a.guard = guard.New(guard.Options{Book: a.book, Rules: owner, Log: a.parts.Log.With("service", guard.Owner), Interval: a.parts.Config.Network.StatsInterval})
	return nil
}

// newCritical makes the part that places critical flows.
func (a *assembly) newCritical() (*critical.Service, error) {
	definitions, faults := a.section.Definitions()
	if err := faults.Err(); err != nil {
		return nil, err
	}
	var s *critical.Service
	owner, err := a.parts.Network.Owner(critical.Owner, network.OwnerOptions{OnRemoved: func(r network.Removed) { s.Removed(r) }})
	if err != nil {
		return nil, fmt.Errorf("register the rules: %w", err)
	}
	s = critical.New(critical.Options{
		Network: a.parts.Network, Rules: owner, Store: a.parts.Store, Book: a.book, Guard: a.guard, Log: a.parts.Log.With("service", Name), Configured: definitions,
		Publish: a.publish, Interval: a.parts.Config.Network.StatsInterval,
	})
	a.parts.Network.AddHandler(rule.ChainCritical, s)
	return s, nil
}

// newClasses makes the part that keeps classes of traffic.
func (a *assembly) newClasses(queues *ovsdb.Owner, beside classes.Critical) (*classes.Service, error) {
	owner, err := a.parts.Network.Owner(classes.OwnerName, network.OwnerOptions{})
	if err != nil {
		return nil, fmt.Errorf("register the rules: %w", err)
	}
	configured, faults := a.section.ParsedClasses()
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return classes.New(classes.Options{
		Network: a.parts.Network, Rules: owner, Book: a.book, Store: a.parts.Store, Log: a.parts.Log.With("service", classes.OwnerName), Publish: a.publish,
		Databases: queues, Critical: beside, Configured: configured, Treatments: a.parts.Treatments,
		Quota: a.section.Quota, Interval: a.parts.Config.Network.StatsInterval, Settle: classSettle, OnConnect: a.section.Queues == "connect",
	}), nil
}

// newSubflows makes the part that places further subflows of large connections.
func (a *assembly) newSubflows() (*subflows.Service, error) {
	var s *subflows.Service
	owner, err := a.parts.Network.Owner(subflows.Owner, network.OwnerOptions{OnRemoved: func(r network.Removed) { s.Removed(r) }})
	if err != nil {
		return nil, fmt.Errorf("register the rules: %w", err)
	}
	o := a.section.Subflows
	var sampled subflows.Sampled
	if o.Plain {
		sampled = a.parts.Network.Traffic()
	}
	s = subflows.New(subflows.Options{
		Settings: subflows.Settings{Enabled: o.Enabled, DSCP: uint8(o.DSCP), Paths: o.Paths, Most: o.Most, Idle: o.Idle},
		Network:  a.parts.Network, Rules: owner, Store: a.parts.Store, Book: a.book, Guard: a.guard, Log: a.parts.Log.With("service", subflows.Owner),
		Publish: a.publish, Interval: a.parts.Config.Network.StatsInterval, Sampled: sampled,
	})
	a.parts.Network.AddHandler(rule.ChainSubflow, s)
	return s, nil
}

// publish publishes an event of the service.
func (a *assembly) publish(kind string, attrs any) { a.parts.Bus.Publish(Name+"."+kind, attrs) }

// EstimateFree estimates the free bandwidth of a link, in bit/s.
func (s *Service) EstimateFree(l network.Link) uint64 { return s.book.EstimateFree(l.From) }

// Reload implements kit.Reloader. Changes of critical traffic and of classes take effect without a
// restart.
func (s *Service) Reload(_ context.Context, next config.Section) (take func(context.Context) error, err error) {
	section := next.(*Section)
	takeCritical, err := s.definitions.Reload(section.Definitions())
	if err != nil {
		return nil, err
	}
	takeClasses, err := s.classes.Reload(section.ParsedClasses())
	if err != nil {
		return nil, err
	}
	return kit.ApplyAll(takeCritical, takeClasses), nil
}
