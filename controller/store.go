package controller

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/etcdstore"
	"github.com/sluice-net/sluice/store/memstore"
	"github.com/sluice-net/sluice/store/pebblestore"
)

// openTimeout bounds the time to open a store.
const openTimeout = 30 * time.Second

// openSlow is the time to open a store after which a message is logged.
const openSlow = 2 * time.Second

// unwritable returns why the store accepts no writes, or nil if it does.
func (c *Controller) unwritable() *store.UnwritableError {
	if s, ok := c.store.(*pebblestore.Store); ok {
		return s.Room()
	}
	return nil
}

// damaged returns the damaged stores that were put aside.
func (c *Controller) damaged() []pebblestore.Aside {
	if s, ok := c.store.(*pebblestore.Store); ok {
		return s.Damaged()
	}
	return nil
}

// runStore maintains the store until ctx ends.
func (c *Controller) runStore(ctx context.Context) error {
	s, ok := c.store.(*pebblestore.Store)
	if !ok {
		<-ctx.Done()
		return nil
	}
	if s.Fresh() {
		c.log.Info("no store was found; a new one has been created", "data_dir", c.cfg.DataDir)
		c.bus.Publish("store.database.created", nil)
	}
	for _, d := range s.Damaged() {
		c.log.Warn("a damaged store is kept aside; remove it when you do not need it", "path", d.Path, "reason", d.Reason)
	}
	var lines lograte.Limit
	return s.Run(ctx, func(why *store.UnwritableError) {
		if why == nil {
			lines.Info(c.log, "the store accepts writes again")
			c.bus.Publish("store.writes.resumed", nil)
			return
		}
		lines.Warn(c.log, "the store accepts no writes; all that needs none goes on", "error", why)
		c.bus.Publish("store.writes.refused", struct {
			Reason string `json:"reason"`
			Free   uint64 `json:"free"`
			Need   uint64 `json:"need"`
		}{why.Error(), why.Free, why.Need})
	})
}

// remarkStore returns the lines about the store in the answer of /readyz, or "" if nothing is wrong.
// They name no paths, because /readyz is public.
func (c *Controller) remarkStore() string {
	var remarks []string
	if c.unwritable() != nil {
		remarks = append(remarks, "the store accepts no writes, see \"sluice status\"")
	}
	if len(c.damaged()) > 0 {
		remarks = append(remarks, "a damaged store is kept aside, see \"sluice status\"")
	}
	return strings.Join(remarks, "\n")
}

// registerStore adds the metrics of the store, and the remarks about it in the answer of /readyz.
func (c *Controller) registerStore() {
	c.api.Metrics().MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_store_writable", Help: "Whether the store accepts writes: 1, or 0 if its file system is full or read-only, or its disk fails.",
	}, func() float64 {
		if c.unwritable() != nil {
			return 0
		}
		return 1
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_store_damaged", Help: "Number of damaged stores that are kept in the data folder.",
	}, func() float64 { return float64(len(c.damaged())) }))
	c.api.AddRemark(c.remarkStore)
}

// openStore opens the store that the configuration names.
func openStore(ctx context.Context, c *config.Controller, log *slog.Logger) (s store.Store, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("controller: data_dir: %w", err)
	}
	switch c.Store.Kind {
	case "memory":
		return memstore.New(), nil
	case "etcd":
		s, err = openCluster(ctx, c.Store, log)
	default:
		slow := time.AfterFunc(openSlow, func() { log.Info("the store is being read", "data_dir", c.DataDir) })
		defer slow.Stop()
		s, err = pebblestore.Open(ctx, pebblestore.Options{
			Dir: c.DataDir, Log: log, MinFree: uint64(c.Store.MinFree),
			Snapshots: pebblestore.SnapshotOptions{Keep: c.Store.Snapshots.Keep, Every: c.Store.Snapshots.Every, MaxBytes: int64(c.Store.Snapshots.MaxSize)},
		})
	}
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return s, nil
}

// openCluster connects to an etcd cluster.
func openCluster(ctx context.Context, c config.Store, log *slog.Logger) (store.Store, error) {
	var tlsConfig *tls.Config
	if c.TLS.Cert != "" || c.TLS.CA != "" {
		var err error
		if tlsConfig, err = pki.Client(c.TLS.Files()); err != nil {
			return nil, fmt.Errorf("store.tls: %w", err)
		}
	}
	return etcdstore.Open(ctx, etcdstore.Options{
		Endpoints: c.Endpoints, Prefix: c.Prefix, Username: c.Username, Password: string(c.Password), TLS: tlsConfig, Log: log,
	})
}
