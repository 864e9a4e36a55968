package etcdstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Options describe the cluster.
type Options struct {
	// Endpoints are the members' client addresses, like "https://10.0.0.1:2379".
	Endpoints []string
	// Prefix is put before all keys, so that several installations can share a cluster. A slash
	// is added if it has none.
	Prefix string
	// TLS is used for https endpoints.
	TLS *tls.Config
	// Username and Password are for clusters with etcd's authentication.
	Username, Password string
	// Log receives the client's errors and warnings.
	Log *slog.Logger
}

// Open connects to a cluster and waits until it answers or ctx ends.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Prefix != "" && !strings.HasSuffix(o.Prefix, "/") {
		o.Prefix += "/"
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, TLS: o.TLS, Username: o.Username, Password: o.Password,
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		Logger: zapLogger(o.Log),
	})
	if err != nil {
		return nil, fmt.Errorf("etcdstore: connect to %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	s := newStore(client, o.Prefix)
	if _, err := s.List(ctx, "nothing-is-stored-here"); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("etcdstore: no answer from %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	return s, nil
}
