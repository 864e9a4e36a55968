package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/qos/latency"
)

// sflowOwner is the name that our sFlow rows in the databases of switches bear.
const sflowOwner = "sluice-sflow"

// databaseRetry is the time after which a database that has refused is asked again.
const databaseRetry = 30 * time.Second

// databases is what the controller itself wants in the databases of connected switches:
// that they report to the sFlow receiver, or stop that, if an earlier start has told them
// to and the configuration does not say so any more; and that the queues of the QoS
// service are gone, if that is switched off.
type databases struct {
	net      *network.Network
	want     *ovsdb.SFlow // nil: no reports
	noQueues bool         // the QoS service does not run
	target   func(openflow.DatapathID, netip.Addr) (string, error)
	tls      *tls.Config
	log      *slog.Logger
	changed  chan struct{} // switches have come or gone
}

// newDatabases returns nil if no databases are known.
func newDatabases(c *Controller) (*databases, error) {
	db := &c.cfg.OVSDB
	if db.Address == "" && len(db.Switches) == 0 {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	r := &databases{net: c.net, log: c.log, changed: make(chan struct{}, 1), noQueues: !c.cfg.QoS.Enabled}
	if t := db.TLS; t.Enabled() {
		var err error
		if r.tls, err = pki.Client(files(t), pki.RoleSwitch); err != nil {
			return nil, fmt.Errorf("ovsdb.tls: %w", err)
		}
	}
	if n := &c.cfg.Network; n.Measure != "poll" && n.SFlow.Collector.IsValid() {
		r.want = &ovsdb.SFlow{
			Targets: []string{n.SFlow.Collector.String()}, Polling: max(1, int(n.StatsInterval/time.Second)), Sampling: n.SFlow.Sampling,
		}
	}
	r.target = func(d openflow.DatapathID, address netip.Addr) (string, error) {
		return db.Target(d, address, c.cfg.Network.Switches[d].Name)
	}
	c.net.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchUp || e.Kind == network.SwitchDown {
			select {
			case r.changed <- struct{}{}:
			default:
			}
		}
	})
	return r, nil
}

// run keeps a connection to the database of each connected switch until ctx ends.
func (r *databases) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	kept := map[*network.Switch]context.CancelFunc{}
	for {
		connected := map[*network.Switch]bool{}
		for _, s := range r.net.Switches() {
			if connected[s] = true; kept[s] != nil {
				continue
			}
			own, cancel := context.WithCancel(ctx)
			kept[s] = cancel
			wg.Go(func() { r.keep(own, s) })
		}
		for s, cancel := range kept {
			if !connected[s] {
				cancel()
				delete(kept, s)
			}
		}
		select {
		case <-ctx.Done():
			for _, cancel := range kept {
				cancel()
			}
			return nil
		case <-r.changed:
		}
	}
}

// keep sees to one switch until ctx ends.
func (r *databases) keep(ctx context.Context, s *network.Switch) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if r.noQueues {
		wg.Go(func() {
			r.until(ctx, s, latency.DatabaseOwner, "", func(ctx context.Context, c *ovsdb.Client) (bool, error) {
				_, err := c.Apply(ctx, uint64(s.DPID()), nil)
				return true, err
			})
		})
	}
	complaint := ""
	if r.want != nil {
		complaint = "a switch does not report by sFlow"
	}
	r.until(ctx, s, sflowOwner, complaint, func(ctx context.Context, c *ovsdb.Client) (bool, error) {
		_, err := c.ApplySFlow(ctx, uint64(s.DPID()), r.want)
		return r.want == nil, err // what has been taken away does not come back
	})
}

// until applies something to a switch's database, again whenever the database changes,
// until that has worked for good or ctx ends. What is wrong is logged once, if there is a
// complaint.
func (r *databases) until(ctx context.Context, s *network.Switch, owner, complaint string, apply func(context.Context, *ovsdb.Client) (forGood bool, err error)) {
	client, err := r.client(s, owner)
	if err != nil {
		if complaint != "" {
			r.log.Warn(complaint, "switch", s.DPID(), "error", err)
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = client.Run(ctx) }) // ends with ctx
	said := ""
	for {
		_, changed := client.State()
		forGood, err := apply(ctx, client)
		switch {
		case err == nil && forGood:
			return
		case err == nil:
			said = ""
		case complaint != "" && !errors.Is(err, ovsdb.ErrDown) && err.Error() != said:
			said = err.Error()
			r.log.Warn(complaint, "switch", s.DPID(), "error", err)
		}
		retry := time.NewTimer(databaseRetry)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-retry.C:
		}
		retry.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

func (r *databases) client(s *network.Switch, owner string) (*ovsdb.Client, error) {
	from, _ := netip.ParseAddrPort(s.RemoteAddr().String()) // a socket of the machine itself has none
	target, err := r.target(s.DPID(), from.Addr())
	if err != nil {
		return nil, err
	}
	return ovsdb.New(ovsdb.Options{Target: target, TLS: r.tls, Owner: owner, Log: r.log})
}
