package controller

import (
	"fmt"

	"github.com/sluice-net/sluice/mobilityfirst/plugin"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
)

func newMobilityFirst(c *Controller) (Service, error) {
	cfg := c.cfg.MobilityFirst
	if !cfg.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	owner, err := c.net.Owner(plugin.Name, network.OwnerOptions{})
	if err != nil {
		return nil, fmt.Errorf("mobilityfirst: %w", err)
	}
	metric, err := topology.ParseMetric(c.cfg.Network.Forwarding.Metric)
	if err != nil {
		return nil, fmt.Errorf("mobilityfirst: %w", err)
	}
	s := plugin.New(plugin.Options{Network: c.net, Rules: owner, Bus: c.bus, Log: c.log, Metric: metric, Lease: cfg.Lease, MaxPaths: cfg.MaxPaths})
	c.net.AddHandler(rule.ChainMobilityFirst, s)
	c.net.Subscribe(s.NetworkChanged)
	return s, nil
}
