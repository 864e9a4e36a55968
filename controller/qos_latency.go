package controller

import (
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/qos/latency"
	"github.com/sluice-net/sluice/qos/reserve"
)

// newClasses makes the part of the service that keeps classes of traffic.
func (c *Controller) newClasses(book *reserve.Book, critical latency.Critical) (*latency.Service, error) {
	owner, err := c.net.Owner(latency.OwnerName, network.OwnerOptions{})
	if err != nil {
		return nil, err
	}
	classes, err := classesOf(c.cfg)
	if err != nil {
		return nil, err
	}
	settings := latency.Settings{Quota: c.cfg.QoS.Quota, Interval: c.cfg.Network.StatsInterval, OnConnect: c.cfg.QoS.Queues == "connect"}
	s, err := latency.New(latency.Options{
		Network: c.net, Rules: owner, Book: book, Store: c.store, Bus: c.bus, Log: c.log, Databases: c.queues, Settings: settings, Critical: critical,
		Configured: classes, Treatments: &c.treatments,
	})
	if err != nil {
		return nil, err
	}
	reloadQoS(c, classesOf, s.Loaded(), s.Declared)
	return s, nil
}

// classesOf are the classes of traffic in a configuration.
func classesOf(c *config.Controller) (map[string]*latency.Class, error) {
	classes, faults := c.QoS.ParsedClasses()
	return classes, faults.Err()
}
