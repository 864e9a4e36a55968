package hostagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/folderlock"
	"github.com/sluice-net/sluice/internal/lograte"
)

const (
	// quick is how often the kernel is asked while connections carry something, or one is new,
	// slow while they do not: for all connections, or only for what the host has carried, while
	// that shows that none of them can have become large. Without connections it is not asked
	// at all. A connection is new for as long as slow.
	quick = 250 * time.Millisecond
	slow  = 2 * time.Second
	// cleanFor is how long taking back what was changed may take.
	cleanFor = 15 * time.Second
)

// Options is what an Agent works with.
type Options struct {
	Policy
	// DSCP is the mark.
	DSCP int
	// State is a file in which it notes what is to be taken back.
	State string
	Log   *slog.Logger
}

// Check says what is wrong with the options.
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
	// maxSubflows is how many the kernel gives a connection besides its first.
	maxSubflows = 7
	// maxAddresses is how many numbers of addresses there are.
	maxAddresses = 254
)

// kernel is what the agent asks of the host's kernel.
type kernel interface {
	// Octets is how many bytes of IP packets the host has sent and received.
	Octets() (uint64, error)
	Connections() ([]Connection, error)
	Carried(local, remote netip.AddrPort) (uint64, error)
	Open(token uint32, local netip.Addr, id uint8, remote netip.AddrPort) error
	End(token uint32, local, remote netip.AddrPort) error
}

// host is the kernel of this host.
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
	kernel kernel
	lines  lograte.Limit

	connections book
	// octets are those of the host when connections were last asked for, latest the latest.
	octets, latest uint64
	// spare is how many bytes all may carry from then on until there is something to do; zero
	// for not known.
	spare uint64
	// newest is when a connection was last heard of.
	newest time.Time
	now    func() time.Time
}

// New returns an agent that does nothing until Run.
func New(o Options) *Agent { return &Agent{Options: o, connections: book{}, now: time.Now} }

// Run works until ctx ends, and then takes back what it has changed of the host. Subflows that
// are there stay.
//
// One agent runs on a host: another would take back what this one has changed. The error wraps
// folderlock.ErrBusy then.
func (a *Agent) Run(ctx context.Context) (err error) {
	lock, err := folderlock.TakeFile(a.State)
	if err != nil {
		return fmt.Errorf("a host agent runs here, or its state cannot be kept: %w", err)
	}
	defer lock.Close()
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
	if err := mark(ctx, a.DSCP); err != nil {
		return err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanFor)
		defer cancel()
		err = errors.Join(err, unmark(clean))
	}()
	selected, err := selectUserspace(a.State)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, selected.restore()) }()
	a.Log.Info("host agent runs", "threshold", a.Threshold, "subflows", a.Subflows, "dscp", a.DSCP)
	heard := make(chan heard)
	reading.Go(func() { listen(ctx, events, heard) })
	return a.follow(ctx, heard)
}

// heard is what the kernel has told at one time.
type heard struct {
	events []Event
	err    error
}

// listen takes events until ctx ends or the subscription does.
func listen(ctx context.Context, from *Events, to chan<- heard) {
	for ctx.Err() == nil {
		events, err := from.Next()
		select {
		case to <- heard{events, err}:
		case <-ctx.Done():
		}
		if err != nil && !errors.Is(err, ErrMissed) {
			return
		}
	}
}

// follow looks at connections as often as there is a reason, until ctx ends.
func (a *Agent) follow(ctx context.Context, from <-chan heard) error {
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
			if a.heard(h) {
				again(quick)
			}
		case <-wait.C:
			due = time.Time{}
			if next, any := a.look(); any {
				again(next)
			}
		}
	}
}

// heard takes what the kernel tells, and says whether connections are to be looked at soon:
// there is a new one, or it is not known what has become of them.
func (a *Agent) heard(h heard) bool {
	soon := errors.Is(h.err, ErrMissed)
	if soon {
		a.spare = 0
	}
	for _, e := range h.events {
		switch f := a.connections[e.Token]; {
		case e.Kind == ConnectionCreated:
			a.newest = a.now()
			a.connections.created(e, a.newest)
			a.spare = 0
			soon = true
		case f == nil:
		case e.Kind == ConnectionClosed:
			delete(a.connections, e.Token)
		default:
			f.told(e)
		}
	}
	return soon
}

// look asks the kernel for connections, and opens and ends what follows from that. It says when
// to look again, if there are any. While the host has not carried as much as would change
// anything the kernel is not asked for each of them.
func (a *Agent) look() (next time.Duration, any bool) {
	now := a.now()
	next = slow
	if now.Sub(a.newest) < slow {
		next = quick
	}
	octets, err := a.kernel.Octets()
	if err == nil && octets-a.octets < a.spare {
		if octets-a.latest > little {
			next = quick
		}
		a.latest = octets
		return next, true
	}
	if a.octets, a.latest = octets, octets; err != nil {
		a.lines.Warn(a.Log, "what the host has carried is not known", "error", err)
	}
	all, err := a.kernel.Connections()
	if err != nil {
		a.lines.Warn(a.Log, "connections are not known", "error", err)
		return slow, true
	}
	if a.connections.see(all, now) {
		next = quick
	}
	open, full := a.connections.open(), false
	for _, f := range a.connections.ordered() {
		if f.unanswered(now) {
			a.lines.Warn(a.Log, "a further subflow has not come about: the other end takes no more", "connection", fmt.Sprintf("%08x", f.Token), "to", f.Remote)
		}
		a.judge(f, now)
		switch o, ok := a.wants(f); {
		case !ok:
		case open >= a.Most:
			full = true
		default:
			next = quick
			if a.open(o, now) {
				open++
			}
		}
	}
	if full {
		a.lines.Warn(a.Log, "large connections get no further subflow: as many are open as may be", "most", a.Most)
	}
	a.spare = 0
	if err == nil {
		a.spare = a.until(a.connections)
	}
	return next, len(a.connections) > 0
}

// open opens a subflow. A connection of which the kernel takes none has the path manager of the
// kernel, or a peer that takes no more: it is left alone from then on.
func (a *Agent) open(o opening, now time.Time) bool {
	f := o.of
	if err := a.kernel.Open(f.Token, o.local, o.id, o.remote); err != nil {
		f.settled = true
		a.lines.Warn(a.Log, "a connection gets no further subflow", "connection", fmt.Sprintf("%08x", f.Token), "to", o.remote, "error", err)
		return false
	}
	f.opened++
	f.own = append(f.own, &opened{local: netip.AddrPortFrom(o.local, 0), remote: o.remote, at: now, since: f.Carried})
	a.lines.Info(a.Log, "a further subflow", "connection", fmt.Sprintf("%08x", f.Token), "from", o.local, "to", o.remote, "carried", f.Carried-f.first)
	return true
}

// judge ends the subflows of a connection that bring it nothing.
func (a *Agent) judge(f *followed, now time.Time) {
	for _, o := range f.due(now) {
		o.judged = true
		carried, err := a.kernel.Carried(o.local, o.remote)
		if err != nil || f.gains(o, carried) {
			continue // one that has ended is told of
		}
		f.settled = true
		if err := a.kernel.End(f.Token, o.local, o.remote); err != nil {
			a.lines.Warn(a.Log, "a subflow that brings nothing stays", "error", err)
			continue
		}
		a.lines.Info(a.Log, "a subflow that brings nothing has been ended", "connection", fmt.Sprintf("%08x", f.Token), "from", o.local, "to", o.remote, "carried", carried)
	}
}
