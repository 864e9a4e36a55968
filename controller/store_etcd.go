//go:build !noetcd

package controller

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/etcdstore"
)

// openSlow is how long a store is waited for without a word.
const openSlow = 2 * time.Second

// openEtcd opens the etcd inside the controller, or a cluster.
func openEtcd(ctx context.Context, c *config.Controller, log *slog.Logger) (store.Store, error) {
	if c.Store.Kind == "etcd" {
		return openCluster(ctx, c.Store, log)
	}
	slow := time.AfterFunc(openSlow, func() { log.Info("the store is being read", "data_dir", c.DataDir) })
	defer slow.Stop()
	return etcdstore.OpenEmbedded(ctx, etcdstore.EmbeddedOptions{
		Dir: c.DataDir, Log: log, MinFree: uint64(c.Store.MinFree),
		Snapshots: etcdstore.SnapshotOptions{Keep: c.Store.Snapshots.Keep, Every: c.Store.Snapshots.Every, MaxBytes: int64(c.Store.Snapshots.MaxSize)},
	})
}

func openCluster(ctx context.Context, c config.Store, log *slog.Logger) (store.Store, error) {
	var tlsConfig *tls.Config
	if c.TLS.Cert != "" || c.TLS.CA != "" {
		var err error
		if tlsConfig, err = pki.Client(c.TLS.Files()); err != nil {
			return nil, fmt.Errorf("store.tls: %w", err)
		}
	}
	return etcdstore.OpenExternal(ctx, etcdstore.ExternalOptions{
		Endpoints: c.Endpoints, Prefix: c.Prefix, Username: c.Username, Password: string(c.Password), TLS: tlsConfig, Log: log,
	})
}
