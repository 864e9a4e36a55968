package nameservice

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/services/mobilityfirst/redisnames"
	"github.com/sluice-net/sluice/services/mobilityfirst/replicas"
)

// store has the names, wherever that is.
type store interface {
	gnrs.Store
	replicas.Store
	Names() uint64
	Close() error
}

// Redis is a Redis Cluster that has names.
type Redis struct {
	// Nodes are some of its nodes, as HOST:PORT; none for no cluster.
	Nodes []string
	// User and Password are for a cluster that asks for them; without User it is Redis's user "default".
	User, Password string
	// TLS names its authority, and a certificate and its key if it asks for one; without an authority and a certificate it is
	// asked without TLS.
	TLS pki.Files
	// Replicas is how many replicas of a master have to have what is written, Fsync what appendfsync of the nodes has to be:
	// zero stands for redisnames.FsyncAlways.
	Replicas int
	Fsync    redisnames.Fsync
}

// Check says what is wrong with it, but for what is in the files. The error wraps redisnames.ErrOptions.
func (r *Redis) Check() error {
	if len(r.Nodes) == 0 {
		if r.User != "" || r.Password != "" || r.TLS.CA != "" || r.TLS.Cert != "" || r.TLS.Key != "" || r.Replicas != 0 {
			return fmt.Errorf("it is not said where Redis is: %w", redisnames.ErrOptions)
		}
		return nil
	}
	if (r.TLS.Cert == "") != (r.TLS.Key == "") {
		return fmt.Errorf("a certificate and its key belong together: %w", redisnames.ErrOptions)
	}
	o := r.options()
	return o.Check()
}

// options are those of the store, without TLS.
func (r *Redis) options() redisnames.Options {
	return redisnames.Options{Nodes: r.Nodes, User: r.User, Password: r.Password, Replicas: r.Replicas, Fsync: r.Fsync}
}

// open opens the store.
func (s *Service) open(ctx context.Context) (store, error) {
	if len(s.Redis.Nodes) == 0 {
		return namestore.Open(namestore.Options{Dir: s.Dir, MaxNames: s.MaxNames, Cache: s.Cache, Log: s.Log})
	}
	if len(s.Domains) > 0 {
		if err := os.MkdirAll(s.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("folder of the name service: %w", err)
		}
	}
	o := s.Redis.options()
	o.MaxNames, o.Log = s.MaxNames, s.Log
	if s.Redis.TLS.CA != "" || s.Redis.TLS.Cert != "" {
		var err error
		if o.TLS, err = pki.Client(s.Redis.TLS); err != nil {
			return nil, fmt.Errorf("TLS to Redis: %w", err)
		}
	}
	return redisnames.Open(ctx, o)
}

// in is where the names are.
func (s *Service) in() string {
	if len(s.Redis.Nodes) == 0 {
		return s.Dir
	}
	return "Redis Cluster at " + strings.Join(s.Redis.Nodes, ", ")
}
