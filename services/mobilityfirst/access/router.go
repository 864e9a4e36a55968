package access

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Router serves hosts of the original release.
type Router struct {
	Options
	warnLimit lograte.Limit // for log lines that others can cause
	links     []*link
	all       []*guest // in the order of Hosts
	// names contains the names of hosts of the original release, by their GUIDs; guids contains the
	// GUIDs by names.
	names, guids map[frame.GUID]frame.GUID
	declared     map[openflow.MAC]*guest // the hosts with a declared Ethernet address
	hops         atomic.Uint32           // the last hop ID that was assigned

	mu       sync.Mutex
	guests   map[uint32]*guest // by the low 32 bits of their GUIDs
	at       map[place]*guest  // the hosts that are present
	counters Counters
}

// place is a link and an Ethernet address on it.
type place struct {
	link *link
	mac  openflow.MAC
}

// Counters counts what a router has done since its start, and describes what it holds.
type Counters struct {
	// Taken counts chunks of hosts that their destinations have taken over, and Expired those that
	// were kept for too long. Left counts chunks that the router had passed to the host of Sluice,
	// which continues to send them, when it closed the connection of their sender. Invalid counts
	// chunks that could not be sent: with a false source, an unsupported service, or without the
	// headers.
	Taken, Expired, Left, Invalid uint64
	// Delivered counts chunks that hosts have acknowledged, and Refused those that were left with
	// their senders because the host did not take them.
	Delivered, Refused uint64
	// Strangers counts frames of hosts that are not declared or not present. Claims counts frames
	// whose senders claim to be a host that is elsewhere, or that may not use their address. NoRoom
	// counts CSYNs for which there was no room, Malformed invalid frames, and Excess frames beyond
	// the limits.
	Strangers, Claims, NoRoom, Malformed, Excess uint64
	// There is the number of present hosts, Chunks the number of chunks that are kept for hosts,
	// and Bytes the part of Memory that hosts use, in bytes.
	There, Chunks, Bytes int
}

// New returns a router that does nothing until Run is called. The error wraps ErrOptions.
func New(o Options) (*Router, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &Router{Options: o, names: map[frame.GUID]frame.GUID{}, guids: map[frame.GUID]frame.GUID{}, declared: map[openflow.MAC]*guest{}, guests: map[uint32]*guest{}, at: map[place]*guest{}}
	r.hops.Store(rand.Uint32()) // a host may remember hop IDs of an earlier router
	for _, name := range o.Interfaces {
		r.links = append(r.links, &link{router: r, name: name})
	}
	for guid, name := range o.Others {
		r.names[guid], r.guids[name] = name, guid
	}
	for _, h := range o.Hosts {
		g := newGuest(r, h, record.NameOfOwner(h.Key))
		r.all = append(r.all, g)
		if !h.MAC.IsZero() {
			r.declared[h.MAC] = g
		}
		r.guests[h.GUID.Short()], r.names[h.GUID], r.guids[g.name] = g, g.name, h.GUID
	}
	return r, nil
}

// Counters returns the current counters.
func (r *Router) Counters() Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counters
	c.There = len(r.at)
	for _, g := range r.all {
		c.Chunks += g.keptChunks
		c.Bytes += g.heldBytes
	}
	return c
}

// Run serves hosts until ctx ends. It then accepts no further chunks, and passes the chunks that it
// has taken over to the host of Sluice, for some seconds at most.
func (r *Router) Run(ctx context.Context) {
	links, guests := tasks.New(), tasks.New()
	defer links.Stop()
	for _, l := range r.links {
		links.Start(l.run)
	}
	links.Start(r.sweep)
	for _, g := range r.all {
		guests.Start(g.run)
	}
	<-ctx.Done()
	r.mu.Lock()
	for _, g := range r.all {
		g.ending = true
	}
	r.mu.Unlock()
	guests.Stop()
}

// sweepShare is the number of checks for silent hosts within Silent, and maxSweepInterval the
// maximum time between two checks.
const sweepShare, maxSweepInterval = 8, time.Second

// sweep removes expired state until ctx ends.
func (r *Router) sweep(ctx context.Context) {
	tick := time.NewTicker(min(r.Silent/sweepShare, maxSweepInterval))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.mu.Lock()
			var quiet []*guest
			for _, g := range r.all {
				if g.expire(now) {
					quiet = append(quiet, g)
				}
			}
			r.mu.Unlock()
			for _, g := range quiet {
				g.probe()
			}
		}
	}
}
