package access

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// nobody and anybody are what stands in place of the low 32 bits of a GUID where a probe is for whoever hears it.
const nobody, anybody = 0, 0xffffffff

// What one host may have the router do in a second: answer or heed probes and associations, answer CSYNs, and hear
// CACKs, of both of which a chunk takes two at least.
const (
	probesEach = 50
	csynsEach  = 20_000
	cacksEach  = 20_000
)

// guest is a host that is served. What it does not say of itself Router.mu guards.
type guest struct {
	Host
	router *Router
	name   frame.GUID
	// changed says that it has come or gone.
	changed chan struct{}
	// delivering has one for each chunk that is being sent to it.
	delivering chan struct{}

	there   bool
	at      place
	heard   time.Time
	ending  bool  // no more chunks of it are taken
	version uint8 // that of its routing headers
	probes  *rate.Limiter
	csyns   *rate.Limiter
	cacks   *rate.Limiter
	session *session // nil while its name is not attached

	// What it sends.
	gathers  map[uint32]*gather // what comes, by hop ID
	finished finished
	flows    map[frame.GUID]*flow // what is kept, by destination
	chunks   int                  // of these
	held     int                  // bytes, of both

	// What it is sent.
	incoming map[frame.GUID]*incoming // by source
	sending  map[uint32]*transfer     // by hop ID
	// association is how often it has associated.
	association atomic.Uint64
}

func newGuest(r *Router, h Host, name frame.GUID) *guest {
	return &guest{
		Host: h, router: r, name: name, changed: make(chan struct{}, 1), delivering: make(chan struct{}, maxTransfers),
		probes: rate.NewLimiter(probesEach, probesEach), csyns: rate.NewLimiter(csynsEach, csynsEach),
		cacks:   rate.NewLimiter(cacksEach, cacksEach),
		gathers: map[uint32]*gather{}, flows: map[frame.GUID]*flow{}, incoming: map[frame.GUID]*incoming{}, sending: map[uint32]*transfer{},
	}
}

// claim is the host that says of itself that it is somewhere; nil if it is not believed. r.mu is held.
func (r *Router) claim(short uint32, at place, now time.Time) *guest {
	g := r.guests[short]
	if g == nil {
		r.counters.Strangers++
		return nil
	}
	other, owner := r.at[at], r.declared[at.mac]
	switch {
	case !g.MAC.IsZero() && g.MAC != at.mac, owner != nil && owner != g, g.there && g.at != at, other != nil && other != g:
		r.counters.Claims++
		r.strange.Warn(r.Log, "somebody says that he is a host which is not to be there", "guid", g.GUID, "mac", at.mac, "interface", at.link.name)
		return nil
	}
	if !g.probes.AllowN(now, 1) {
		r.counters.Excess++
		return nil
	}
	g.heard = now
	return g
}

// probed hears a probe, and gives the answer. r.mu is held.
func (r *Router) probed(at place, p *frame.Probe, now time.Time) frame.Frame {
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

// associated hears an association: the host has begun. r.mu is held.
func (r *Router) associated(at place, a *frame.Associate, now time.Time) {
	if g := r.claim(a.Client, at, now); g != nil {
		g.association.Add(1)
		g.forget()
		g.arrive(at)
	}
}

// arrive notes that a host is there. Router.mu is held.
func (g *guest) arrive(at place) {
	if g.there {
		return
	}
	g.there, g.at = true, at
	g.router.at[at] = g
	g.router.strange.Info(g.router.Log, "host is there", "guid", g.GUID, "name", g.name, "mac", at.mac, "interface", at.link.name)
	g.kick()
}

// depart notes that it is gone. Router.mu is held.
func (g *guest) depart(why string) {
	g.there = false
	delete(g.router.at, g.at)
	g.forget()
	g.router.strange.Info(g.router.Log, "host is gone", "guid", g.GUID, "name", g.name, "why", why)
	g.kick()
}

// kick has the host's goroutine look whether it is there.
func (g *guest) kick() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// forget gives up what a host has sent in part, and its hop IDs: those that begin anew mean other chunks. Router.mu is held.
func (g *guest) forget() {
	for hop := range g.gathers {
		g.drop(hop)
	}
	g.finished = finished{}
}

// expire gives up what is over, and says whether the host is to be asked for a sign. Router.mu is held.
func (g *guest) expire(now time.Time) (ask bool) {
	for hop, x := range g.gathers {
		if now.Sub(x.last) > gatherFor {
			g.drop(hop)
		}
	}
	for _, f := range g.flows {
		f.expire(now)
	}
	silent := now.Sub(g.heard)
	if g.there && silent > g.router.Silent {
		g.depart("it is silent")
	}
	return g.there && silent > g.router.Silent/2
}

// ask sends the host a probe, lest one that has nothing to say is taken to be gone.
func (g *guest) ask() {
	at, is := g.place()
	if !is {
		return
	}
	at.link.mu.Lock()
	id := at.link.id
	at.link.mu.Unlock()
	_ = at.link.tell(at.mac, &frame.Probe{Source: id, Destination: g.GUID.Short()}) // if it is lost the next may not be
}

// place is where the host is, if it is there.
func (g *guest) place() (at place, is bool) {
	g.router.mu.Lock()
	defer g.router.mu.Unlock()
	return g.at, g.there
}

// run has the host's name attached while the host is there, until ctx ends.
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
