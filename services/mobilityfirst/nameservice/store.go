package nameservice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/services/mobilityfirst/redisnames"
	"github.com/sluice-net/sluice/services/mobilityfirst/replicas"
)

// store is the interface of a store of names, in a folder or in Redis.
type store interface {
	gnrs.Store
	replicas.Store
	Names() uint64
	Close() error
}

// Redis configures a Redis Cluster that holds names.
type Redis struct {
	// Nodes lists some of its nodes as HOST:PORT; if it is empty there is no cluster.
	Nodes []string
	// User and Password authenticate to the cluster; without User it is Redis's user "default".
	User, Password string
	// TLS names the files of the authority and, if the cluster requires one, of a client
	// certificate and its key. Without an authority and a certificate the connection does not use
	// TLS.
	TLS pki.Files
	// Replicas is how many replicas of a master must have a write, and Fsync the required
	// appendfsync setting of the nodes; zero selects redisnames.FsyncAlways.
	Replicas int
	Fsync    redisnames.Fsync
}

// Check checks the options, but not the contents of files. The error wraps redisnames.ErrOptions.
func (r *Redis) Check() error {
	if len(r.Nodes) == 0 {
		if r.User != "" || r.Password != "" || r.TLS.CA != "" || r.TLS.Cert != "" || r.TLS.Key != "" || r.Replicas != 0 {
			return fmt.Errorf("no node of the cluster is given, but other options for it are: %w", redisnames.ErrOptions)
		}
		return nil
	}
	if (r.TLS.Cert == "") != (r.TLS.Key == "") {
		return fmt.Errorf("a certificate and its key belong together: %w", redisnames.ErrOptions)
	}
	o := r.options()
	return o.Check()
}

// options returns the options of the store without TLS.
func (r *Redis) options() redisnames.Options {
	return redisnames.Options{Nodes: r.Nodes, User: r.User, Password: r.Password, Replicas: r.Replicas, Fsync: r.Fsync}
}

// openInterval is the time between two attempts to open a store on a full disk.
const openInterval = 5 * time.Second

// openWithRoom opens the store. While its disk is too full for that, it waits: the program that the
// service is part of has other work, and a start can succeed as soon as there is room. It returns
// nil if ctx ends meanwhile.
func (s *Service) openWithRoom(ctx context.Context) (store, error) {
	store, err := s.open(ctx)
	if !errors.Is(err, namestore.ErrDiskFull) {
		return store, err
	}
	s.Log.Error("the name service waits for room on its disk, and answers nobody until then", "folder", s.Dir, "error", err)
	for {
		if tasks.Sleep(ctx, openInterval) != nil {
			return nil, nil
		}
		if store, err = s.open(ctx); !errors.Is(err, namestore.ErrDiskFull) {
			return store, err
		}
	}
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

// location returns where the names are, for the log.
func (s *Service) location() string {
	if len(s.Redis.Nodes) == 0 {
		return s.Dir
	}
	return "Redis Cluster at " + strings.Join(s.Redis.Nodes, ", ")
}
