package network

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/openflow"
)

// Treatment is what one service has promised to packets that another carries under headers
// of its own: a class of traffic, say, on a connection that agents carry.
type Treatment struct {
	// Name is that of the promise.
	Name string `json:"name"`
	// DSCP is what the packets bear between two carriers, where nothing else tells them
	// from packets without the treatment; zero for none.
	DSCP uint8 `json:"dscp,omitempty"`
	// Own is what they bear where an end host sees them.
	Own uint8 `json:"own,omitempty"`
}

// Carried is a port by which packets of a treatment leave a switch under a carrier's headers.
type Carried struct {
	Treatment string
	At        PortRef
	// Between says that they do so between two carriers, and bear the treatment's DSCP.
	Between bool
}

// Promiser is who promises treatments. Its methods may be called concurrently.
type Promiser interface {
	// Loaded is closed when the promises of an earlier controller are there.
	Loaded() <-chan struct{}
	// Treatment of packets of which these headers are known; false if they have none.
	Treatment(openflow.Match) (Treatment, bool)
	// Queue is the one into which packets have to be put at a port; zero if there is none
	// yet, or if their DSCP puts them there.
	Queue(Carried) uint32
	// Carry reports ports that are in use now. One that has not been reported for a while
	// counts as unused. It does not block.
	Carry([]Carried)
}

// Treatments is where services meet of which one promises treatments and others carry
// traffic: neither knows the other. The zero value knows of no promises, and so does nil.
// Its methods may be called concurrently.
type Treatments struct {
	mu          sync.Mutex
	source      Promiser
	carriers    []string
	subscribers []func()
	epoch       uint64
}

// Promise makes a service the one that promises.
func (t *Treatments) Promise(p Promiser) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.source = p
}

// Subscribe makes the owner of rules with this name a carrier, and has f called after each
// change of what is promised. It must not block.
func (t *Treatments) Subscribe(carrier string, f func()) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.carriers, t.subscribers = append(t.carriers, carrier), append(t.subscribers, f)
}

// Carriers are the owners of rules that lead what is carried.
func (t *Treatments) Carriers() []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.carriers)
}

// Changed says that what is promised, or where it can be kept, is not as it was.
func (t *Treatments) Changed() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.epoch++
	subscribers := t.subscribers
	t.mu.Unlock()
	for _, f := range subscribers {
		f()
	}
}

// Epoch grows with each change.
func (t *Treatments) Epoch() uint64 {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch
}

// promiser is who promises, nil if nobody does.
func (t *Treatments) promiser() Promiser {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.source
}

// Await returns when the promises of an earlier controller are there, or ctx ends.
func (t *Treatments) Await(ctx context.Context) {
	p := t.promiser()
	if p == nil {
		return
	}
	select {
	case <-p.Loaded():
	case <-ctx.Done():
	}
}

// Of is the treatment of packets of which these headers are known, the zero value if they
// have none.
func (t *Treatments) Of(m openflow.Match) Treatment {
	if p := t.promiser(); p != nil {
		if x, ok := p.Treatment(m); ok {
			return x
		}
	}
	return Treatment{}
}

// Queue is the one into which packets of a treatment have to be put at a port, zero if none.
func (t *Treatments) Queue(c Carried) uint32 {
	if p := t.promiser(); p != nil && c.Treatment != "" {
		return p.Queue(c)
	}
	return 0
}

// Carry reports ports by which packets of treatments are carried now. One that has not been
// reported for a while counts as unused.
func (t *Treatments) Carry(all []Carried) {
	if p := t.promiser(); p != nil {
		p.Carry(all)
	}
}
