package ovsdb

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// checkInterval is the time after which all switches are checked again, because a database
	// may have refused something for a temporary reason.
	checkInterval = 5 * time.Second
	// keepDownFor is how long the connection to the database of a disconnected switch is kept.
	keepDownFor = 5 * time.Minute
	// maxDownSwitches limits the disconnected switches whose databases stay connected.
	maxDownSwitches = 64
)

// ManagerOptions configure a Manager.
type ManagerOptions struct {
	// Switches returns the datapath identifiers of the connected switches, and Target the
	// address of a switch's database. Both may be called at any time.
	Switches func() []uint64
	Target   func(dpid uint64) (string, error)
	// TLS is the configuration for ssl targets.
	TLS *tls.Config
	Log *slog.Logger
}

// Manager keeps one connection to each database of a connected switch, however many bridges the
// database has, and the desired state of the owners at those bridges. It is safe for concurrent
// use.
type Manager struct {
	opts  ManagerOptions
	tasks *tasks.Group
	wake  chan struct{}

	mu        sync.Mutex
	owners    []*Owner
	databases map[string]*connection
	switches  map[uint64]*switchEntry
}

// connection is a connection to one database, with the number of switches that use it.
type connection struct {
	client *Client
	users  int
	cancel context.CancelFunc
}

// switchEntry is a switch that is connected, or was a short time ago.
type switchEntry struct {
	target      string
	err         error // why it has no database; the other fields are empty then
	db          *connection
	reconcilers map[*Owner]*reconciler
	cancel      []context.CancelFunc // end the reconcilers
	downSince   time.Time            // when it disconnected
}

// NewManager returns a manager that does nothing until Run is called.
func NewManager(o ManagerOptions) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{opts: o, tasks: tasks.New(), wake: make(chan struct{}, 1), databases: map[string]*connection{}, switches: map[uint64]*switchEntry{}}
}

// Owner returns the owner with a name. It changes nothing until Declare is called. A name has
// only one owner.
func (m *Manager) Owner(name string) (*Owner, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == "" || slices.ContainsFunc(m.owners, func(o *Owner) bool { return o.name == name }) {
		return nil, fmt.Errorf("ovsdb: owner %q: want a name that no other owner has", name)
	}
	o := &Owner{m: m, name: name}
	m.owners = append(m.owners, o)
	return o, nil
}

// Wake requests a check of the switches. It does not block.
func (m *Manager) Wake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. The configuration stays in the databases.
func (m *Manager) Run(ctx context.Context) error {
	defer m.tasks.Stop()
	every := time.NewTicker(checkInterval)
	defer every.Stop()
	for {
		m.checkSwitches(time.Now())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		case <-m.wake:
		}
	}
}

// checkSwitches connects to the database of each connected switch, and drops switches that have
// been disconnected for some time.
func (m *Manager) checkSwitches(now time.Time) {
	up := m.opts.Switches()
	for _, d := range up {
		m.attach(d)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropOldSwitches(up, now)
}

// attach connects a switch to its database and starts missing reconcilers.
func (m *Manager) attach(d uint64) {
	target, err := m.opts.Target(d) // without the lock: Target may wait for a goroutine that reports a change to m
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.switches[d]
	switch {
	case err != nil && s != nil: // it may be disconnecting
		return
	case err != nil:
		m.opts.Log.Warn("a switch has no database", "switch", fmt.Sprintf("%016x", d), "error", err)
		m.switches[d] = &switchEntry{err: err}
		return
	case s == nil || s.target != target:
		m.detach(d)
		s = m.connect(target)
		m.switches[d] = s
	}
	for _, o := range m.owners {
		if s.err == nil && s.reconcilers[o] == nil {
			s.reconcilers[o] = m.startReconciler(s, o, d)
		}
	}
	s.touch()
}

// startReconciler starts a reconciler for an owner and a switch. The lock is held.
func (m *Manager) startReconciler(s *switchEntry, o *Owner, d uint64) *reconciler {
	k := newReconciler(o, d, s.db.client, m.opts.Log)
	ctx, cancel := context.WithCancel(m.tasks.Context())
	s.cancel = append(s.cancel, cancel)
	if !m.tasks.Start(func(context.Context) { k.run(ctx) }) {
		k.finish(math.MaxUint64, errClosed)
	}
	return k
}

func (s *switchEntry) touch() {
	for _, k := range s.reconcilers {
		k.touch()
	}
}

// connect returns a switch with a connection to its database. Switches with the same database
// share one connection. The lock is held.
func (m *Manager) connect(target string) *switchEntry {
	db := m.databases[target]
	if db == nil {
		client, err := New(Options{Target: target, TLS: m.opts.TLS, Log: m.opts.Log})
		if err != nil {
			return &switchEntry{target: target, err: err}
		}
		ctx, cancel := context.WithCancel(m.tasks.Context())
		db = &connection{client: client, cancel: cancel}
		m.databases[target] = db
		m.tasks.Start(func(context.Context) { _ = client.Run(ctx) }) // ends with ctx
	}
	db.users++
	return &switchEntry{target: target, db: db, reconcilers: map[*Owner]*reconciler{}}
}

// detach removes a switch, and the connection to its database if no other switch uses it. The
// lock is held.
func (m *Manager) detach(d uint64) {
	s := m.switches[d]
	delete(m.switches, d)
	if s == nil || s.db == nil {
		return
	}
	for _, cancel := range s.cancel {
		cancel()
	}
	if s.db.users--; s.db.users == 0 {
		s.db.cancel()
		delete(m.databases, s.target)
	}
}

// dropOldSwitches removes disconnected switches: those that have no database or have been
// disconnected for longer than keepDownFor, and the longest disconnected ones if there are more
// than maxDownSwitches. The lock is held.
func (m *Manager) dropOldSwitches(up []uint64, now time.Time) {
	var gone []uint64
	for d, s := range m.switches {
		switch {
		case slices.Contains(up, d):
			s.downSince = time.Time{}
			continue
		case s.downSince.IsZero():
			s.downSince = now
		}
		gone = append(gone, d)
	}
	slices.SortFunc(gone, func(a, b uint64) int {
		return cmp.Or(m.switches[b].downSince.Compare(m.switches[a].downSince), cmp.Compare(a, b))
	})
	for i, d := range gone {
		if i >= maxDownSwitches || now.Sub(m.switches[d].downSince) > keepDownFor || m.switches[d].err != nil {
			m.detach(d)
		}
	}
}

// errNotConnected means that the manager knows no connected switch with that identifier.
var errNotConnected = errors.New("it is not connected")

// reconcilerOf returns the reconciler of an owner and a switch. The switch may have connected a
// moment ago.
func (m *Manager) reconcilerOf(o *Owner, d uint64) (*reconciler, error) {
	k, err := m.lookupReconciler(o, d)
	if k == nil && slices.Contains(m.opts.Switches(), d) {
		m.attach(d)
		k, err = m.lookupReconciler(o, d)
	}
	return k, err
}

func (m *Manager) lookupReconciler(o *Owner, d uint64) (*reconciler, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.switches[d]
	switch {
	case s == nil:
		return nil, fmt.Errorf("database of switch %016x: %w", d, errNotConnected)
	case s.err != nil:
		return nil, s.err
	}
	return s.reconcilers[o], nil
}
