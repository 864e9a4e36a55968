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
	// lookInterval is the time after which all is looked at again: a database may have
	// refused something for a reason that is gone.
	lookInterval = 5 * time.Second
	// forgetAfter is how long the database of a switch is kept that is not connected.
	forgetAfter = 5 * time.Minute
	// keptGone bounds the switches that are not connected and whose databases are kept.
	keptGone = 64
)

// ManagerOptions is what a Manager is made from.
type ManagerOptions struct {
	// Switches lists the switches that are connected, by datapath identifier, and Target
	// says where the database of one of them is. Both may be called at any time.
	Switches func() []uint64
	Target   func(dpid uint64) (string, error)
	// TLS is for ssl targets.
	TLS *tls.Config
	Log *slog.Logger
}

// Manager keeps one connection to each database of a connected switch, however many
// bridges it has, and what the owners want of those bridges. Its methods may be called
// concurrently.
type Manager struct {
	opts  ManagerOptions
	tasks *tasks.Group
	woken chan struct{}

	mu        sync.Mutex
	owners    []*Owner
	databases map[string]*shared
	switches  map[uint64]*managed
}

// shared is the connection to one database.
type shared struct {
	client *Client
	users  int
	cancel context.CancelFunc
}

// managed is a switch that is connected, or was a short while ago.
type managed struct {
	target  string
	err     error // why it has no database; the rest is empty then
	db      *shared
	keepers map[*Owner]*keeper
	cancel  []context.CancelFunc // ends the keepers
	gone    time.Time            // since when it is not connected
}

// NewManager returns a manager that does nothing until Run.
func NewManager(o ManagerOptions) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Manager{opts: o, tasks: tasks.New(), woken: make(chan struct{}, 1), databases: map[string]*shared{}, switches: map[uint64]*managed{}}
}

// Owner returns the owner of rows that bear a name. It wants nothing to be changed until
// it is told by Declare. A name has one owner.
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

// Wake has the switches looked at soon. It does not block.
func (m *Manager) Wake() {
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. What is configured stays.
func (m *Manager) Run(ctx context.Context) error {
	defer m.tasks.Stop()
	every := time.NewTicker(lookInterval)
	defer every.Stop()
	for {
		m.look(time.Now())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-every.C:
		case <-m.woken:
		}
	}
}

// look has a database for each switch that is connected, and for no other for long.
func (m *Manager) look(now time.Time) {
	up := m.opts.Switches()
	for _, d := range up {
		m.attach(d)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(up, now)
}

// attach gives a switch its database and the keepers that it lacks.
func (m *Manager) attach(d uint64) {
	target, err := m.opts.Target(d) // not under the lock: whom it asks may be telling of a change
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.switches[d]
	switch {
	case err != nil && s != nil: // it may be going at the moment
		return
	case err != nil:
		m.opts.Log.Warn("a switch has no database", "switch", fmt.Sprintf("%016x", d), "error", err)
		m.switches[d] = &managed{err: err}
		return
	case s == nil || s.target != target:
		m.detach(d)
		s = m.open(target)
		m.switches[d] = s
	}
	for _, o := range m.owners {
		if s.err == nil && s.keepers[o] == nil {
			s.keepers[o] = m.keep(s, o, d)
		}
	}
	s.touch()
}

// keep starts what keeps a switch as an owner wants it. The lock is held.
func (m *Manager) keep(s *managed, o *Owner, d uint64) *keeper {
	k := newKeeper(o, d, s.db.client, m.opts.Log)
	ctx, cancel := context.WithCancel(m.tasks.Context())
	s.cancel = append(s.cancel, cancel)
	if !m.tasks.Start(func(context.Context) { k.run(ctx) }) {
		k.finish(math.MaxUint64, errEnded)
	}
	return k
}

func (s *managed) touch() {
	for _, k := range s.keepers {
		k.touch()
	}
}

// open is a switch with a connection to its database, which is one for all who have the
// same. The lock is held.
func (m *Manager) open(target string) *managed {
	db := m.databases[target]
	if db == nil {
		client, err := New(Options{Target: target, TLS: m.opts.TLS, Log: m.opts.Log})
		if err != nil {
			return &managed{target: target, err: err}
		}
		ctx, cancel := context.WithCancel(m.tasks.Context())
		db = &shared{client: client, cancel: cancel}
		m.databases[target] = db
		m.tasks.Start(func(context.Context) { _ = client.Run(ctx) }) // ends with ctx
	}
	db.users++
	return &managed{target: target, db: db, keepers: map[*Owner]*keeper{}}
}

// detach gives up a switch, and its database if no other has the same. The lock is held.
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

// forget gives up switches that have long not been connected, and those that were gone
// first if there are many. The lock is held.
func (m *Manager) forget(up []uint64, now time.Time) {
	var gone []uint64
	for d, s := range m.switches {
		switch {
		case slices.Contains(up, d):
			s.gone = time.Time{}
			continue
		case s.gone.IsZero():
			s.gone = now
		}
		gone = append(gone, d)
	}
	slices.SortFunc(gone, func(a, b uint64) int {
		return cmp.Or(m.switches[b].gone.Compare(m.switches[a].gone), cmp.Compare(a, b))
	})
	for i, d := range gone {
		if i >= keptGone || now.Sub(m.switches[d].gone) > forgetAfter || m.switches[d].err != nil {
			m.detach(d)
		}
	}
}

// errUnknown says that there is no such switch now.
var errUnknown = errors.New("it is not connected")

// keeper is that of an owner and a switch, which may have connected a moment ago.
func (m *Manager) keeper(o *Owner, d uint64) (*keeper, error) {
	k, err := m.find(o, d)
	if k == nil && slices.Contains(m.opts.Switches(), d) {
		m.attach(d)
		k, err = m.find(o, d)
	}
	return k, err
}

func (m *Manager) find(o *Owner, d uint64) (*keeper, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.switches[d]
	switch {
	case s == nil:
		return nil, fmt.Errorf("database of switch %016x: %w", d, errUnknown)
	case s.err != nil:
		return nil, s.err
	}
	return s.keepers[o], nil
}
