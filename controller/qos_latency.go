package controller

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/qos/latency"
	"github.com/sluice-net/sluice/qos/reserve"
)

// newClasses makes the part of the service that keeps classes of traffic.
func (c *Controller) newClasses(book *reserve.Book, critical latency.Critical) (*latency.Service, error) {
	owner, err := c.net.Owner(latency.OwnerName, network.OwnerOptions{})
	if err != nil {
		return nil, err
	}
	settings := latency.Settings{
		Quota: c.cfg.QoS.Quota, Interval: c.cfg.Network.StatsInterval, OnConnect: c.cfg.QoS.Queues == "connect",
		Target: func(d openflow.DatapathID, address netip.Addr) (string, error) {
			return c.cfg.OVSDB.Target(d, address, c.cfg.Network.Switches[d].Name)
		},
	}
	if t := c.cfg.OVSDB.TLS; t.Enabled() {
		if settings.TLS, err = pki.Client(files(t), pki.RoleSwitch); err != nil {
			return nil, fmt.Errorf("ovsdb.tls: %w", err)
		}
	}
	return latency.New(latency.Options{
		Network: c.net, Rules: owner, Book: book, Store: c.store, Bus: c.bus, Log: c.log, Settings: settings, Critical: critical,
	})
}
