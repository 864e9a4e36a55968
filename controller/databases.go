package controller

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/pki"
)

// sflowOwner is the name that marks our sFlow rows in the switches' databases.
const sflowOwner = "sluice-sflow"

// makeDatabases makes the manager of the switches' databases. It declares the controller's own settings
// in them, which make switches report to the sFlow receiver. If the configuration no longer asks for
// reports, the manager removes the settings of an earlier start.
func (c *Controller) makeDatabases() error {
	db := &c.cfg.OVSDB
	o := ovsdb.ManagerOptions{Log: c.log}
	if t := db.TLS; t.Enabled() {
		var err error
		if o.TLS, err = pki.Client(t.Files(), pki.RoleSwitch); err != nil {
			return fmt.Errorf("ovsdb.tls: %w", err)
		}
	}
	if db.Address == "" && len(db.Switches) == 0 {
		o.Log = slog.New(slog.DiscardHandler) // no database is configured, so a missing one is no error
	}
	o.Switches = func() []uint64 {
		var out []uint64
		for _, d := range c.net.Datapaths() {
			out = append(out, uint64(d))
		}
		return out
	}
	o.Target = func(dpid uint64) (string, error) {
		d := openflow.DatapathID(dpid)
		return db.Target(d, c.net.Address(d), c.cfg.Network.Switches[d].Name)
	}
	c.databases = ovsdb.NewManager(o)
	c.net.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchUp || e.Kind == network.SwitchDown {
			c.databases.Wake()
		}
	})
	reports, err := c.databases.Owner(sflowOwner)
	if err != nil {
		return err
	}
	reports.Declare(c.reports)
	return nil
}

// reports returns the settings with which a switch reports to the sFlow receiver, if there is one.
func (c *Controller) reports(uint64, ovsdb.Bridge) (ovsdb.Wanted, error) {
	n := &c.cfg.Network
	if n.Measure == "poll" || !n.SFlow.Collector.IsValid() {
		return ovsdb.Wanted{}, nil
	}
	return ovsdb.Wanted{SFlow: &ovsdb.SFlow{
		Targets: []string{n.SFlow.Collector.String()}, Polling: max(1, int(n.StatsInterval/time.Second)), Sampling: n.SFlow.Sampling,
	}}, nil
}
