package controller

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

// openTimeout bounds how long a store may take to answer for the first time.
const openTimeout = 30 * time.Second

// roomy is a store that may have no room for writes.
type roomy interface {
	Room() *store.NoRoomError
	Run(ctx context.Context, told func(*store.NoRoomError)) error
}

// room says why the store accepts no writes; nil if it does.
func (c *Controller) room() *store.NoRoomError {
	if s, ok := c.store.(roomy); ok {
		return s.Room()
	}
	return nil
}

// runStore looks after the store until ctx ends.
func (c *Controller) runStore(ctx context.Context) error {
	s, ok := c.store.(roomy)
	if !ok {
		<-ctx.Done()
		return nil
	}
	var lines lograte.Limit
	return s.Run(ctx, func(why *store.NoRoomError) {
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

// registerStore adds what is counted of the store.
func (c *Controller) registerStore() {
	c.api.Metrics().MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_store_writable", Help: "Whether the store accepts writes: 1, or 0 if its file system is full.",
	}, func() float64 {
		if c.room() != nil {
			return 0
		}
		return 1
	}))
}

func openStore(ctx context.Context, c *config.Controller, log *slog.Logger) (store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("controller: data_dir: %w", err)
	}
	if c.Store.Kind == "memory" {
		return memstore.New(), nil
	}
	s, err := openEtcd(ctx, c, log)
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return s, nil
}
