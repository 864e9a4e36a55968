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
	strange lograte.Limit // lines that others can cause
	links   []*link
	all     []*guest // in the order of Hosts
	// names are those of hosts of the original release, by their GUIDs; guids are their GUIDs, by names.
	names, guids map[frame.GUID]frame.GUID
	declared     map[openflow.MAC]*guest // those of whom the only address is declared
	hops         atomic.Uint32           // the last hop ID that was given to a chunk

	mu       sync.Mutex
	guests   map[uint32]*guest // by the low 32 bits of their GUIDs
	at       map[place]*guest  // those that are there
	counters Counters
}

// place is where a host is.
type place struct {
	link *link
	mac  openflow.MAC
}

// Counters are what a router has done since it was made, and what it has.
type Counters struct {
	// Taken are chunks of hosts that their destinations have taken, Expired those that were kept in vain, and Left those
	// that the host of ours had when their sender was gone, and goes on with. Invalid are chunks that could not be
	// sent: of a false source, of a service that there is none of here, or without the headers.
	Taken, Expired, Left, Invalid uint64
	// Delivered are chunks that hosts have acknowledged, Refused those that were left with their senders, since the host
	// did not take them.
	Delivered, Refused uint64
	// Strangers are frames of those who are not declared or not there, Claims those that say they are a host which is
	// elsewhere, or not to be heard from there; NoRoom are CSYNs for which there was no room, Malformed frames that are none,
	// and Excess those beyond what one may send in a second.
	Strangers, Claims, NoRoom, Malformed, Excess uint64
	// There is how many hosts are there, Chunks and Bytes are what the router has of theirs, and what they count of Memory.
	There, Chunks, Bytes int
}

// New returns a router that does nothing until Run. The error wraps ErrOptions.
func New(o Options) (*Router, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &Router{Options: o, names: map[frame.GUID]frame.GUID{}, guids: map[frame.GUID]frame.GUID{}, declared: map[openflow.MAC]*guest{}, guests: map[uint32]*guest{}, at: map[place]*guest{}}
	r.hops.Store(rand.Uint32()) // a host may remember those of a router before
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

// Counters is what it has done until now.
func (r *Router) Counters() Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counters
	c.There = len(r.at)
	for _, g := range r.all {
		c.Chunks += g.chunks
		c.Bytes += g.held
	}
	return c
}

// Run serves until ctx ends. Then it takes no more chunks, and gives those that it has to the host of ours, for some
// seconds at most.
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

// sweepShare is how often within Silent it is looked who is not heard any more, and sweepMost how long it takes at most
// until it is.
const sweepShare, sweepMost = 8, time.Second

// sweep looks what is over until ctx ends.
func (r *Router) sweep(ctx context.Context) {
	tick := time.NewTicker(min(r.Silent/sweepShare, sweepMost))
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
				g.ask()
			}
		}
	}
}
