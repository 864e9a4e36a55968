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
	// readWithin and writeWithin are how long Redis may take for what is read and written together: who asks a server gives up
	// after twice half a second.
	readWithin, writeWithin = 400 * time.Millisecond, 900 * time.Millisecond
	// dialWithin is how long a connection to a node may take.
	dialWithin = 300 * time.Millisecond
	// MaxReplicas is how many replicas can be waited for.
	MaxReplicas = 16
)

// ErrOptions is for options that can't be; errors wrap it.
var ErrOptions = errors.New("these are no options of a store in Redis")

// Options is how a store is.
type Options struct {
	// Nodes are some of the cluster's nodes, as HOST:PORT: they tell of the others.
	Nodes []string
	// User and Password are for a cluster that asks for them; without User it is Redis's user "default".
	User, Password string
	// TLS is for a cluster that is asked over TLS; nil for one that is not.
	TLS *tls.Config
	// Replicas is how many replicas of its master have to have a write, from 0 to MaxReplicas.
	Replicas int
	// Fsync is what the nodes' appendfsync has to be at least; zero stands for FsyncAlways.
	Fsync Fsync
	// MaxNames bounds the keys that the cluster has; zero stands for namestore.DefaultMaxNames. It may be passed by what is
	// written in some seconds.
	MaxNames uint64
	// Log receives the log; nil discards it.
	Log *slog.Logger
	// slack is added to the times that Redis may take, by tests on a busy machine.
	slack time.Duration
}

// Check says what is wrong with the options. The error wraps ErrOptions.
func (o *Options) Check() error {
	if len(o.Nodes) == 0 {
		return fmt.Errorf("no node of the cluster: %w", ErrOptions)
	}
	for i, node := range o.Nodes {
		host, port, err := net.SplitHostPort(node)
		number, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || host == "" || number == 0 {
			return fmt.Errorf("node %d: want a host and a port, like 192.0.2.7:6379: %w", i+1, ErrOptions) // it may be a URL with a password
		}
	}
	switch {
	case o.User != "" && o.Password == "":
		return fmt.Errorf("user %s has no password: %w", o.User, ErrOptions)
	case o.Replicas < 0 || o.Replicas > MaxReplicas:
		return fmt.Errorf("%d replicas to wait for, 0 to %d can be: %w", o.Replicas, MaxReplicas, ErrOptions)
	}
	_, err := o.Fsync.MarshalText()
	return err
}

// Store keeps records. Its methods may be called concurrently.
type Store struct {
	Options
	cluster *redis.ClusterClient
	tasks   *tasks.Group
	self    atomic.Pointer[string] // says of news that they are its own
	keep    time.Duration
	reads   *lanes[*get]
	writes  *lanes[*write]
	known   known
	lines   lograte.Limit

	names   atomic.Uint64
	state   atomic.Pointer[state]
	hears   atomic.Bool
	changed atomic.Pointer[func(frame.GUID)]
	close   sync.Once
}

// Open opens the store in a cluster. It does not need one that answers: until there is one, all that is asked is refused with
// record.ErrBusy. The error wraps ErrOptions, ErrWeak, or says what Redis says.
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
	s.rename()
	s.cluster.OnNewNode(func(node *redis.Client) {
		if o.Replicas > 0 {
			node.AddHook(waitHook{o.Replicas})
		}
	})
	s.reads, s.writes = newLanes(s.readAll), newLanes(s.writeAll)
	s.refuse(fmt.Errorf("redis at %s has not answered yet: %w", strings.Join(o.Nodes, ", "), record.ErrBusy))
	err := s.look(ctx)
	switch {
	case errors.Is(err, record.ErrBusy):
		s.Log.Warn("Redis does not answer: nobody is told where names are until it does", "nodes", o.Nodes, "error", err)
	case err != nil:
		return nil, errors.Join(err, s.cluster.Close())
	}
	s.tasks.Start(s.keepLooking)
	s.tasks.Start(s.listen)
	return s, nil
}

// silence keeps the library, which has one log for all of a program, from writing what its errors say.
var silence = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

// silent is a log of nothing.
type silent struct{}

// Printf implements the library's logger.
func (silent) Printf(context.Context, string, ...any) {}

// cluster is how the library asks.
func (o *Options) cluster() *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: slices.Clone(o.Nodes), Username: o.User, Password: o.Password, Dialer: o.dial,
		DialTimeout: dialWithin + o.slack, DialerRetries: 1, ReadTimeout: writeWithin + o.slack, WriteTimeout: writeWithin + o.slack, ContextTimeoutEnabled: true,
		PoolSize: 4 * maxRunning, Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Close ends it. What has been started is done before, or refused.
func (s *Store) Close() error {
	err := record.ErrClosed
	s.close.Do(func() {
		s.tasks.Stop()
		s.refuse(record.ErrClosed)
		s.reads.stop()
		s.writes.stop()
		err = s.cluster.Close()
	})
	return err
}

// refuse has nothing asked any more.
func (s *Store) refuse(why error) { s.state.Store(&state{err: why, weak: why}) }

// Names is how many keys the cluster had some seconds ago, of names and of anything else.
func (s *Store) Names() uint64 { return s.names.Load() }

var be = binary.BigEndian

const (
	// prefix stands before a name, in hexadecimal, as the key of its record.
	prefix = "sluice:name:"
	// stamp is how long what stands before a record is: when it was written, in nanoseconds since 1970.
	stamp = 8
	// maxValue is how much of a value is asked for: more than any record has.
	maxValue = 1024
)

func keyOf(name frame.GUID) string { return prefix + hex.EncodeToString(name[:]) }

// nameOf is the name whose key it is, and whether it is one.
func nameOf(key string) (name frame.GUID, is bool) {
	b, err := hex.DecodeString(strings.TrimPrefix(key, prefix))
	if err != nil || len(b) != len(name) || !strings.HasPrefix(key, prefix) {
		return name, false
	}
	return frame.GUID(b), true
}

// master says where the master of a name is.
func (s *Store) master(name frame.GUID) (string, error) {
	node, err := s.cluster.MasterForKey(s.tasks.Context(), keyOf(name)) // which is known since the cluster has answered
	if err != nil {
		return "", told(err)
	}
	return node.Options().Addr, nil
}

// busy are how errors of Redis begin that are over when the cluster has found itself.
var busy = []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "READONLY", "NOREPLICAS", "MOVED", "ASK", "BUSY", "max number of clients"}

// told is what Redis, or the way there, has said, as stores say it.
func told(err error) error {
	switch answer := redis.Error(nil); {
	case err == nil || errors.Is(err, record.ErrBusy):
		return err
	case !errors.As(err, &answer): // it has not answered
		return fmt.Errorf("redis: %w: %w", err, record.ErrBusy)
	case slices.ContainsFunc(busy, func(begin string) bool { return redis.HasErrorPrefix(err, begin) }):
		return fmt.Errorf("redis: %w: %w", err, record.ErrBusy)
	case redis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("redis: %w: %w", err, record.ErrFull)
	default:
		return fmt.Errorf("redis: %w", err)
	}
}
