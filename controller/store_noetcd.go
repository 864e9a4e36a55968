//go:build noetcd

package controller

import (
	"context"
	"errors"
	"log/slog"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/store"
)

// openEtcd refuses: tests under the race detector leave etcd out, which takes minutes to
// compile for it.
func openEtcd(context.Context, *config.Controller, *slog.Logger) (store.Store, error) {
	return nil, errors.New("built without etcd, by the tag noetcd: set store.kind to memory")
}
