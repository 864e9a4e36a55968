package controller

import (
	"fmt"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/services/mobilityfirst/nameservice"
)

func newMobilityFirst(c *Controller) (Service, error) {
	cfg := c.cfg.MobilityFirst
	if !cfg.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	owner, err := c.net.Owner(mobilityfirst.Name, network.OwnerOptions{})
	if err != nil {
		return nil, fmt.Errorf("mobilityfirst: %w", err)
	}
	metric, err := topology.ParseMetric(c.cfg.Network.Forwarding.Metric)
	if err != nil {
		return nil, fmt.Errorf("mobilityfirst: %w", err)
	}
	nodes, err := nodesOf(c.cfg)
	if err != nil {
		return nil, fmt.Errorf("mobilityfirst: %w", err)
	}
	nodeTLS, err := c.tlsTo(pki.RoleNode)
	if err != nil {
		return nil, err
	}
	s := mobilityfirst.New(mobilityfirst.Options{
		Network: c.net, Rules: owner, Store: c.store, Bus: c.bus, Log: c.log, Metric: metric, Lease: cfg.Lease, MaxPaths: cfg.MaxPaths,
		Configured: nodes, NodeTLS: nodeTLS, Dial: c.opts.DialAgent,
	})
	c.net.AddHandler(rule.ChainMobilityFirst, s)
	c.net.Subscribe(s.NetworkChanged)
	reloadDeclared(c, mobilityfirst.Name, nodesOf, s.Loaded(), s.Nodes())
	return s, nil
}

// nodesOf are the nodes in a configuration.
func nodesOf(c *config.Controller) (map[string]agents.AgentRecord, error) {
	nodes, faults := c.MobilityFirst.ParsedNodes()
	return nodes, faults.Err()
}

func newNameService(c *Controller) (Service, error) {
	o, is := c.cfg.NameService()
	if !is || !c.cfg.MobilityFirst.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	o.Log = c.log.With("service", nameservice.Name)
	return nameservice.New(o), nil
}
