package controller

import (
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
	settings := latency.Settings{Quota: c.cfg.QoS.Quota, Interval: c.cfg.Network.StatsInterval, OnConnect: c.cfg.QoS.Queues == "connect"}
	return latency.New(latency.Options{
		Network: c.net, Rules: owner, Book: book, Store: c.store, Bus: c.bus, Log: c.log, Databases: c.queues, Settings: settings, Critical: critical,
		Treatments: &c.treatments,
	})
}
