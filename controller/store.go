package controller

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/etcdstore"
	"github.com/sluice-net/sluice/store/memstore"
)

// openTimeout bounds how long a store may take to answer for the first time.
const openTimeout = 30 * time.Second

func openStore(ctx context.Context, c *config.Controller, log *slog.Logger) (store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("controller: data_dir: %w", err)
	}
	switch c.Store.Kind {
	case "memory":
		return memstore.New(), nil
	case "etcd":
		return openCluster(ctx, c.Store, log)
	}
	s, err := etcdstore.OpenEmbedded(ctx, etcdstore.EmbeddedOptions{Dir: c.DataDir, Log: log})
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return s, nil
}

func openCluster(ctx context.Context, c config.Store, log *slog.Logger) (store.Store, error) {
	var tlsConfig *tls.Config
	if c.TLS.Cert != "" || c.TLS.CA != "" {
		var err error
		if tlsConfig, err = pki.Client(files(c.TLS)); err != nil {
			return nil, fmt.Errorf("controller: store.tls: %w", err)
		}
	}
	s, err := etcdstore.OpenExternal(ctx, etcdstore.ExternalOptions{
		Endpoints: c.Endpoints, Prefix: c.Prefix, Username: c.Username, Password: string(c.Password), TLS: tlsConfig, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return s, nil
}
