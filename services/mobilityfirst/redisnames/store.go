package redisnames

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// readTimeout and writeTimeout limit a batch of reads or writes. A client of the name service
	// gives up after a second.
	readTimeout, writeTimeout = 400 * time.Millisecond, 900 * time.Millisecond
	// dialTimeout limits connecting to a node.
	dialTimeout = 300 * time.Millisecond
	// MaxReplicas is the maximum number of replicas to wait for.
	MaxReplicas = 16
)

// ErrOptions means that options are not valid; errors wrap it.
var ErrOptions = errors.New("invalid options for a store in Redis")

// Options configures a Store.
type Options struct {
	// Nodes lists some of the cluster's nodes as HOST:PORT; they report the others.
	Nodes []string
	// User and Password authenticate to the cluster; without User it is Redis's user "default".
	User, Password string
	// TLS is the configuration of TLS; nil connects without TLS.
	TLS *tls.Config
	// Replicas is the number of replicas of a master that must have a write, from 0 to MaxReplicas.
	Replicas int
	// Fsync is the minimum of the nodes' appendfsync; zero selects FsyncAlways.
	Fsync Fsync
	// MaxNames limits the keys of the cluster; zero selects namestore.DefaultMaxNames. Writes
	// within some seconds may exceed it.
	MaxNames uint64
	// Log receives the log; nil discards it.
	Log *slog.Logger
	// slack is added to all timeouts by tests on a busy machine.
	slack time.Duration
}

// Check checks the options. The error wraps ErrOptions.
func (o *Options) Check() error {
	if len(o.Nodes) == 0 {
		return fmt.Errorf("no node of the cluster: %w", ErrOptions)
	}
	for i, node := range o.Nodes {
		host, port, err := net.SplitHostPort(node)
		number, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || host == "" || number == 0 {
			return fmt.Errorf("node %d: want a host and a port, like 192.0.2.7:6379: %w", i+1, ErrOptions) // the message omits the value, which may be a URL with a password
		}
	}
	switch {
	case o.User != "" && o.Password == "":
		return fmt.Errorf("user %s has no password: %w", o.User, ErrOptions)
	case o.Replicas < 0 || o.Replicas > MaxReplicas:
		return fmt.Errorf("%d replicas to wait for, want 0 to %d: %w", o.Replicas, MaxReplicas, ErrOptions)
	}
	_, err := o.Fsync.MarshalText()
	return err
}

// Store stores records in a Redis Cluster. Its methods may be called concurrently.
type Store struct {
	Options
	cluster   *redis.ClusterClient
	tasks     *tasks.Group
	sender    atomic.Pointer[string] // identifies this store's own notifications
	keep      time.Duration
	reads     *masterQueues[*get]
	writes    *masterQueues[*write]
	known     verifiedSet
	warnLimit lograte.Limit

	names   atomic.Uint64
	state   atomic.Pointer[state]
	hears   atomic.Bool
	changed atomic.Pointer[func(frame.GUID)]
	close   sync.Once
}

// Open opens the store in a cluster. The cluster need not answer yet: until it does, all operations
// are refused with record.ErrBusy. The error wraps ErrOptions or ErrWeak, or is that of Redis.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.MaxNames == 0 {
		o.MaxNames = namestore.DefaultMaxNames
	}
	o.Fsync = cmp.Or(o.Fsync, FsyncAlways)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	silence()
	s := &Store{Options: o, cluster: redis.NewClusterClient(o.cluster()), tasks: tasks.New(), keep: record.KeepFor + time.Second}
	s.renewSender()
	s.cluster.OnNewNode(func(node *redis.Client) {
		if o.Replicas > 0 {
			node.AddHook(waitHook{o.Replicas})
		}
	})
	s.reads, s.writes = newMasterQueues(s.readAll), newMasterQueues(s.writeAll)
	s.setUnavailable(fmt.Errorf("redis at %s has not answered yet: %w", strings.Join(o.Nodes, ", "), record.ErrBusy))
	err := s.checkNodes(ctx)
	switch {
	case errors.Is(err, record.ErrBusy):
		s.Log.Warn("Redis does not answer: nobody is told where names are until it does", "nodes", o.Nodes, "error", err)
	case err != nil:
		return nil, errors.Join(err, s.cluster.Close())
	}
	s.tasks.Start(s.monitor)
	s.tasks.Start(s.listen)
	return s, nil
}

// silence disables the log of the library, which is global and repeats what its errors say.
var silence = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

// silent is a logger that discards everything.
type silent struct{}

// Printf implements the library's logger.
func (silent) Printf(context.Context, string, ...any) {}

// cluster returns the options of the library.
func (o *Options) cluster() *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: slices.Clone(o.Nodes), Username: o.User, Password: o.Password, Dialer: o.dial,
		DialTimeout: dialTimeout + o.slack, DialerRetries: 1, ReadTimeout: writeTimeout + o.slack, WriteTimeout: writeTimeout + o.slack, ContextTimeoutEnabled: true,
		PoolSize: 4 * maxRunning, Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Close closes the store. Operations that have been started end or are refused before Close
// returns.
func (s *Store) Close() error {
	err := record.ErrClosed
	s.close.Do(func() {
		s.tasks.Stop()
		s.setUnavailable(record.ErrClosed)
		s.reads.stop()
		s.writes.stop()
		err = s.cluster.Close()
	})
	return err
}

// setUnavailable makes the store refuse all operations.
func (s *Store) setUnavailable(why error) { s.state.Store(&state{err: why, writeErr: why}) }

// Names returns the number of keys in the cluster some seconds ago, of names and of anything else.
func (s *Store) Names() uint64 { return s.names.Load() }

var be = binary.BigEndian

const (
	// prefix is the prefix of keys; the name in hexadecimal digits follows it.
	prefix = "sluice:name:"
	// stampSize is the size in bytes of the time before a record: when it was written, in
	// nanoseconds since 1970.
	stampSize = 8
	// maxValue is the number of bytes of a value that are read, which is more than any record has.
	maxValue = 1024
)

func keyOf(name frame.GUID) string { return prefix + hex.EncodeToString(name[:]) }

// nameOf returns the name in a key; ok is false if the key is not that of a name.
func nameOf(key string) (name frame.GUID, ok bool) {
	b, err := hex.DecodeString(strings.TrimPrefix(key, prefix))
	if err != nil || len(b) != len(name) || !strings.HasPrefix(key, prefix) {
		return name, false
	}
	return frame.GUID(b), true
}

// master returns the address of the master of a name.
func (s *Store) master(name frame.GUID) (string, error) {
	node, err := s.cluster.MasterForKey(s.tasks.Context(), keyOf(name)) // the masters are known since the cluster has answered
	if err != nil {
		return "", storeError(err)
	}
	return node.Options().Addr, nil
}

// busyErrors lists the prefixes of errors that end when the cluster has recovered.
var busyErrors = []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "READONLY", "NOREPLICAS", "MOVED", "ASK", "BUSY", "max number of clients"}

// storeError converts an error of Redis or of the connection to one of a store.
func storeError(err error) error {
	switch answer := redis.Error(nil); {
	case err == nil || errors.Is(err, record.ErrBusy):
		return err
	case !errors.As(err, &answer): // Redis has not answered
		return fmt.Errorf("redis: %w: %w", err, record.ErrBusy)
	case slices.ContainsFunc(busyErrors, func(begin string) bool { return redis.HasErrorPrefix(err, begin) }):
		return fmt.Errorf("redis: %w: %w", err, record.ErrBusy)
	case redis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("redis: %w: %w", err, record.ErrFull)
	default:
		return fmt.Errorf("redis: %w", err)
	}
}
