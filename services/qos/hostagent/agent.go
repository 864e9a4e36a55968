package hostagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/internal/folderlock"
	"github.com/sluice-net/sluice/internal/lograte"
)

const (
	// fastInterval is the interval of polls of the kernel while connections carry data, or while a
	// connection is new. slowInterval is the interval otherwise. A connection is new for
	// slowInterval. A poll asks only for the number of bytes that the host has carried, as long as
	// that shows that no connection can have become large, and otherwise for all connections.
	// Without connections the kernel is not polled.
	fastInterval = 250 * time.Millisecond
	slowInterval = 2 * time.Second
	// cleanupTimeout bounds the time to undo the agent's changes of the host.
	cleanupTimeout = 15 * time.Second
)

// Options holds what New needs.
type Options struct {
	Policy
	// DSCP is the mark of SYNs of further subflows.
	DSCP int
	// State is the path of a file in which the agent records the setting that it has to restore.
	// Agents in several network namespaces need a file each.
	State string
	// Drift records what other programs have changed, and the agent has restored.
	Drift *drift.Counts
	Log   *slog.Logger
}

// Check returns an error if an option is invalid.
func (o *Options) Check() error {
	switch {
	case o.Threshold < 1:
		return errors.New("a threshold of no bytes: want 1 or more")
	case o.Subflows < 1 || o.Subflows > maxSubflows:
		return fmt.Errorf("%d further subflows of a connection: want 1 to %d", o.Subflows, maxSubflows)
	case o.Most < 1:
		return fmt.Errorf("%d further subflows in all: want 1 or more", o.Most)
	case o.DSCP < 1 || o.DSCP > 63:
		return fmt.Errorf("the DSCP %d: want 1 to 63", o.DSCP)
	case len(o.Addresses) > maxAddresses:
		return fmt.Errorf("%d addresses: want at most %d", len(o.Addresses), maxAddresses)
	}
	return nil
}

const (
	// maxSubflows is the number of subflows that the kernel allows a connection besides its first.
	maxSubflows = 7
	// maxAddresses is the number of address identifiers in MPTCP that the agent can use.
	maxAddresses = 254
)

// kernel contains the functions of the host's kernel that the agent uses.
type kernel interface {
	// Octets returns the number of bytes of IP packets that the host has sent and received.
	Octets() (uint64, error)
	Connections() ([]Connection, error)
	Carried(local, remote netip.AddrPort) (uint64, error)
	Open(token uint32, local netip.Addr, id uint8, remote netip.AddrPort) error
	End(token uint32, local, remote netip.AddrPort) error
}

// host implements kernel for this host.
type host struct{ *PathManager }

// Octets implements kernel.
func (host) Octets() (uint64, error) { return Octets() }

// Connections implements kernel.
func (host) Connections() ([]Connection, error) { return Connections() }

// Carried implements kernel.
func (host) Carried(local, remote netip.AddrPort) (uint64, error) { return Carried(local, remote) }

// Agent opens further subflows of large connections.
type Agent struct {
	Options
	kernel   kernel
	logLimit lograte.Limit

	connections connections
	// octetsAtPoll is the host's byte count when the connections were last requested. latestOctets
	// is the latest byte count.
	octetsAtPoll, latestOctets uint64
	// budget is the number of bytes that the host may carry since octetsAtPoll before the agent may
	// have to act; zero if not known.
	budget uint64
	// newest is the time at which a connection was last created.
	newest time.Time
	now    func() time.Time
}

// New returns an agent that does nothing until Run.
func New(o Options) *Agent { return &Agent{Options: o, connections: connections{}, now: time.Now} }

// Run runs the agent until ctx ends, and then undoes its changes of the host. Existing
// subflows stay.
//
// Only one agent may run in a network namespace, because another would undo the changes of the
// first. If an agent runs already, the error wraps folderlock.ErrBusy and names its process.
func (a *Agent) Run(ctx context.Context) (err error) {
	lock, err := folderlock.TakeNamespace(lockDir, "host-agent")
	if err != nil {
		return fmt.Errorf("only one host agent can run here: %w", err)
	}
	defer lock.Close()
	stateLock, err := folderlock.TakeFile(a.State)
	if err != nil {
		return fmt.Errorf("the file for the agent's state: %w", err)
	}
	defer stateLock.Close()
	manager, err := NewPathManager()
	if err != nil {
		return err
	}
	events, err := Subscribe()
	if err != nil {
		return err
	}
	a.kernel = host{manager}
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer events.Close()
	defer cancel()
	m := &marks{dscp: a.DSCP}
	if err := m.install(ctx); err != nil {
		return err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, m.remove(clean))
	}()
	selected, err := selectUserspace(a.State)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, selected.restore()) }()
	keeper, err := drift.Open(a.Drift, m.thing(), drift.Sysctl(selected.path, selected.userspace))
	if err != nil {
		return err
	}
	a.Log.Info("host agent runs", "threshold", a.Threshold, "subflows", a.Subflows, "dscp", a.DSCP)
	heard := make(chan notification)
	reading.Go(func() { receiveEvents(ctx, events, heard) })
	var keeping sync.WaitGroup
	var keepErr error
	keeping.Go(func() {
		keepErr = keeper.Run(ctx)
		cancel()
	})
	err = a.loop(ctx, heard)
	cancel()
	keeping.Wait() // it would restore what is now undone
	return errors.Join(err, keepErr)
}

// lockDir is the folder of the lock by which an agent finds out whether another one runs.
const lockDir = "/run/sluice"

// notification holds the events, or the error, of one message from the kernel.
type notification struct {
	events []Event
	err    error
}

// receiveEvents passes on events until ctx ends or the subscription ends.
func receiveEvents(ctx context.Context, from *Events, to chan<- notification) {
	for ctx.Err() == nil {
		events, err := from.Next()
		select {
		case to <- notification{events, err}:
		case <-ctx.Done():
		}
		if err != nil && !errors.Is(err, ErrMissed) {
			return
		}
	}
}

// loop polls connections, at the intervals that poll returns and soon after events, until ctx ends.
func (a *Agent) loop(ctx context.Context, from <-chan notification) error {
	wait := time.NewTimer(0)
	defer wait.Stop()
	due := a.now() // zero for never
	again := func(in time.Duration) {
		if at := a.now().Add(in); due.IsZero() || at.Before(due) {
			due = at
			wait.Reset(in)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case h := <-from:
			if h.err != nil && !errors.Is(h.err, ErrMissed) {
				if ctx.Err() != nil {
					return nil
				}
				return h.err
			}
			if a.handle(h) {
				again(fastInterval)
			}
		case <-wait.C:
			due = time.Time{}
			if next, any := a.poll(); any {
				again(next)
			}
		}
	}
}

// handle handles a notification of the kernel, and reports whether connections should be polled
// soon, because one is new or events were lost.
func (a *Agent) handle(h notification) bool {
	soon := errors.Is(h.err, ErrMissed)
	if soon {
		a.budget = 0
	}
	for _, e := range h.events {
		switch f := a.connections[e.Token]; {
		case e.Kind == ConnectionCreated:
			a.newest = a.now()
			a.connections.add(e, a.newest)
			a.budget = 0
			soon = true
		case f == nil:
		case e.Kind == ConnectionClosed:
			delete(a.connections, e.Token)
		default:
			f.subflowChanged(e)
		}
	}
	return soon
}

// poll asks the kernel for connections, and opens and ends subflows accordingly. It returns the
// time until the next poll, and false if there are no connections. While the host has carried fewer
// bytes than budget, no connection can need a change, and poll does not ask for the connections.
func (a *Agent) poll() (next time.Duration, any bool) {
	now := a.now()
	next = slowInterval
	if now.Sub(a.newest) < slowInterval {
		next = fastInterval
	}
	octets, err := a.kernel.Octets()
	if err == nil && octets-a.octetsAtPoll < a.budget {
		if octets-a.latestOctets > idleBytes {
			next = fastInterval
		}
		a.latestOctets = octets
		return next, true
	}
	if a.octetsAtPoll, a.latestOctets = octets, octets; err != nil {
		a.logLimit.Warn(a.Log, "what the host has carried is not known", "error", err)
	}
	all, err := a.kernel.Connections()
	if err != nil {
		a.logLimit.Warn(a.Log, "connections are not known", "error", err)
		return slowInterval, true
	}
	if a.connections.update(all, now) {
		next = fastInterval
	}
	open, full := a.connections.openSubflows(), false
	for _, f := range a.connections.byCarried() {
		if f.dropUnanswered(now) {
			a.logLimit.Warn(a.Log, "a further subflow has not come about: the other end takes no more", "connection", fmt.Sprintf("%08x", f.Token), "to", f.Remote)
		}
		a.evaluate(f, now)
		switch o, ok := a.nextSubflow(f); {
		case !ok:
		case open >= a.Most:
			full = true
		default:
			next = fastInterval
			if a.openSubflow(o, now) {
				open++
			}
		}
	}
	if full {
		a.logLimit.Warn(a.Log, "large connections get no further subflow: as many are open as may be", "most", a.Most)
	}
	a.budget = 0
	if err == nil {
		a.budget = a.bytesUntilAction(a.connections)
	}
	return next, len(a.connections) > 0
}

// openSubflow opens a subflow, and reports whether it did. The kernel refuses if the connection
// belongs to the kernel's own path manager, or if its peer accepts no more subflows. The connection
// then gets no further subflows.
func (a *Agent) openSubflow(o openRequest, now time.Time) bool {
	f := o.of
	if err := a.kernel.Open(f.Token, o.local, o.id, o.remote); err != nil {
		f.finished = true
		a.logLimit.Warn(a.Log, "a connection gets no further subflow", "connection", fmt.Sprintf("%08x", f.Token), "to", o.remote, "error", err)
		return false
	}
	f.opened++
	f.subflows = append(f.subflows, &ownSubflow{local: netip.AddrPortFrom(o.local, 0), remote: o.remote, at: now, since: f.Carried})
	a.logLimit.Info(a.Log, "a further subflow", "connection", fmt.Sprintf("%08x", f.Token), "from", o.local, "to", o.remote, "carried", f.Carried-f.first)
	return true
}

// evaluate ends the subflows of a connection that carry next to nothing.
func (a *Agent) evaluate(f *trackedConn, now time.Time) {
	for _, o := range f.toEvaluate(now) {
		o.evaluated = true
		carried, err := a.kernel.Carried(o.local, o.remote)
		if err != nil || f.isUseful(o, carried) {
			continue // the kernel reports when a subflow ends by itself
		}
		f.finished = true
		if err := a.kernel.End(f.Token, o.local, o.remote); err != nil {
			a.logLimit.Warn(a.Log, "a subflow that brings nothing stays", "error", err)
			continue
		}
		a.logLimit.Info(a.Log, "a subflow that brings nothing has been ended", "connection", fmt.Sprintf("%08x", f.Token), "from", o.local, "to", o.remote, "carried", carried)
	}
}
