package access

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// A probe that any router may answer has nobody or anybody as its destination, in place of the low
// 32 bits of a router's GUID.
const nobody, anybody = 0, 0xffffffff

// Each host is limited to these numbers of probes and associations, of CSYNs, and of CACKs per
// second. Each chunk takes at least two CSYNs and two CACKs.
const (
	maxProbes = 50
	maxCSYNs  = 20_000
	maxCACKs  = 20_000
)

// guest is a served host. Router.mu guards the fields from present on, except association.
type guest struct {
	Host
	router *Router
	name   frame.GUID
	// changed signals that the host has arrived or left.
	changed chan struct{}
	// delivering contains one element for each chunk that is being sent to the host.
	delivering chan struct{}

	present   bool
	at        place
	lastHeard time.Time
	ending    bool  // no further chunks are accepted from it
	version   uint8 // the version of its routing headers
	probes    *rate.Limiter
	csyns     *rate.Limiter
	cacks     *rate.Limiter
	session   *session // nil while its name is not attached

	// Input from the host.
	reassemblies map[uint32]*reassembly // incomplete chunks, by hop ID
	finished     finishedChunks
	flows        map[frame.GUID]*flow // complete chunks, by destination
	keptChunks   int                  // in flows
	heldBytes    int                  // bytes in reassemblies and flows

	// Output to the host.
	incoming map[frame.GUID]*incoming // by source
	sending  map[uint32]*transfer     // by hop ID
	// association counts the associations of the host.
	association atomic.Uint64
}

func newGuest(r *Router, h Host, name frame.GUID) *guest {
	return &guest{
		Host: h, router: r, name: name, changed: make(chan struct{}, 1), delivering: make(chan struct{}, maxTransfers),
		probes: rate.NewLimiter(maxProbes, maxProbes), csyns: rate.NewLimiter(maxCSYNs, maxCSYNs),
		cacks:        rate.NewLimiter(maxCACKs, maxCACKs),
		reassemblies: map[uint32]*reassembly{}, flows: map[frame.GUID]*flow{}, incoming: map[frame.GUID]*incoming{}, sending: map[uint32]*transfer{},
	}
}

// claim returns the host that claims to be at a place, or nil if the claim is not accepted. r.mu is
// held.
func (r *Router) claim(short uint32, at place, now time.Time) *guest {
	g := r.guests[short]
	if g == nil {
		r.counters.Strangers++
		return nil
	}
	other, owner := r.at[at], r.declared[at.mac]
	switch {
	case !g.MAC.IsZero() && g.MAC != at.mac, owner != nil && owner != g, g.present && g.at != at, other != nil && other != g:
		r.counters.Claims++
		r.warnLimit.Warn(r.Log, "somebody says that he is a host which is not to be there", "guid", g.GUID, "mac", at.mac, "interface", at.link.name)
		return nil
	}
	if !g.probes.AllowN(now, 1) {
		r.counters.Excess++
		return nil
	}
	g.lastHeard = now
	return g
}

// handleProbe handles a probe and returns the answer. r.mu is held.
func (r *Router) handleProbe(at place, p *frame.Probe, now time.Time) frame.Frame {
	g := r.claim(p.Source, at, now)
	if g == nil {
		return nil
	}
	g.arrive(at)
	if id := at.link.id; p.Destination == nobody || p.Destination == anybody || p.Destination == id {
		return &frame.Probe{Source: id, Destination: p.Source, Sequence: p.Sequence, Ack: true}
	}
	return nil
}

// handleAssociate handles an association: the host has started. r.mu is held.
func (r *Router) handleAssociate(at place, a *frame.Associate, now time.Time) {
	if g := r.claim(a.Client, at, now); g != nil {
		g.association.Add(1)
		g.reset()
		g.arrive(at)
	}
}

// arrive records that the host is present. Router.mu is held.
func (g *guest) arrive(at place) {
	if g.present {
		return
	}
	g.present, g.at = true, at
	g.router.at[at] = g
	g.router.warnLimit.Info(g.router.Log, "host is there", "guid", g.GUID, "name", g.name, "mac", at.mac, "interface", at.link.name)
	g.wakeUp()
}

// depart records that the host has left. Router.mu is held.
func (g *guest) depart(reason string) {
	g.present = false
	delete(g.router.at, g.at)
	g.reset()
	g.router.warnLimit.Info(g.router.Log, "host is gone", "guid", g.GUID, "name", g.name, "why", reason)
	g.wakeUp()
}

// wakeUp makes the host's goroutine check whether the host is present.
func (g *guest) wakeUp() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// reset removes incomplete chunks and hop IDs, because a host that restarts uses the IDs for other
// chunks. Router.mu is held.
func (g *guest) reset() {
	for hop := range g.reassemblies {
		g.drop(hop)
	}
	g.finished = finishedChunks{}
}

// expire removes expired state, and reports whether the host has to be probed. Router.mu is held.
func (g *guest) expire(now time.Time) (ask bool) {
	for hop, x := range g.reassemblies {
		if now.Sub(x.last) > reassemblyTimeout {
			g.drop(hop)
		}
	}
	for _, f := range g.flows {
		f.expire(now)
	}
	silent := now.Sub(g.lastHeard)
	if g.present && silent > g.router.Silent {
		g.depart("it is silent")
	}
	return g.present && silent > g.router.Silent/2
}

// probe sends a probe to the host, so that a present host that has nothing to send answers and does
// not count as gone.
func (g *guest) probe() {
	at, ok := g.place()
	if !ok {
		return
	}
	at.link.mu.Lock()
	id := at.link.id
	at.link.mu.Unlock()
	_ = at.link.sendFrame(at.mac, &frame.Probe{Source: id, Destination: g.GUID.Short()}) // if the probe is lost, a later one follows
}

// place returns the place of the host; ok is false if the host is not present.
func (g *guest) place() (at place, ok bool) {
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	return g.at, g.present
}

// run attaches the host's name while the host is present, until ctx ends.
func (g *guest) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.changed:
		}
		g.serve(ctx)
	}
}
