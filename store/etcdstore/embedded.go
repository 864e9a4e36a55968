package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// memberName is etcd's name for the only member of an embedded "cluster". It
// and the peer address (which nothing listens on) are part of the data folder
// and must not change.
const (
	memberName  = "sluice"
	peerAddress = "http://127.0.0.1:2380"
)

// EmbeddedOptions says how the embedded etcd works.
type EmbeddedOptions struct {
	// Dir is the data folder. It is made, readable by its owner only.
	Dir string
	// Log receives etcd's errors (as warnings) and warnings (as debug lines).
	Log *slog.Logger
}

// OpenEmbedded starts an etcd inside this process and waits until it answers
// or ctx ends.
func OpenEmbedded(ctx context.Context, o EmbeddedOptions) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("etcdstore: make the data folder: %w", err)
	}
	unlock, err := lock(o.Dir)
	if err != nil {
		return nil, err
	}
	server, err := start(ctx, o)
	if err != nil {
		unlock()
		return nil, err
	}
	return newStore(v3client.New(server.Server), "", func() error {
		server.Close()
		unlock()
		return nil
	}), nil
}

func start(ctx context.Context, o EmbeddedOptions) (*embed.Etcd, error) {
	server, err := embed.StartEtcd(embeddedConfig(o))
	if err != nil {
		return nil, fmt.Errorf("etcdstore: start etcd on %s: %w", o.Dir, err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case err = <-server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	server.Server.HardStop()
	server.Close()
	return nil, fmt.Errorf("etcdstore: etcd on %s did not become ready: %w", o.Dir, err)
}

func embeddedConfig(o EmbeddedOptions) *embed.Config {
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = filepath.Join(o.Dir, "etcd")
	// No listeners: nothing outside this process can reach it.
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	peer, _ := url.Parse(peerAddress) // a constant that parses
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{*peer}, []url.URL{*peer}
	c.InitialCluster = memberName + "=" + peerAddress
	// A single member elects itself, up to one election timeout after its start;
	// switches wait for that. Nobody else is there who could be too slow for it.
	c.TickMs, c.ElectionMs = 10, 50
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "1h"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(o.Log))
	return c
}

// lock makes sure that no other process works on the folder: etcd itself would
// wait for it without a word.
func lock(dir string) (unlock func(), err error) {
	file := filepath.Join(dir, "lock")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("etcdstore: lock the data folder: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another controller works on it: stop that one, or give this one a data folder of its own")
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("etcdstore: lock %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// operationTimeout bounds each operation of a caller that set no deadline.
const operationTimeout = 10 * time.Second
