package network

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/openflow"
)

// Treatment describes what one service has promised for packets that another service, the carrier,
// forwards under headers of its own. An example is the class of traffic of a connection that agents
// relay.
type Treatment struct {
	// Name names the promise, for instance the class of traffic.
	Name string `json:"name"`
	// DSCP marks the packets between two machines of the carrier, such as agents, where nothing else
	// distinguishes them from packets without the treatment. Zero means no mark.
	DSCP uint8 `json:"dscp,omitempty"`
	// Own is the DSCP of the packets where an end host sees them.
	Own uint8 `json:"own,omitempty"`
}

// Carried is a port by which packets of a treatment leave a switch under a carrier's headers.
type Carried struct {
	Treatment string
	At        PortRef
	// Between reports whether the packets travel between two machines of the carrier, such as
	// agents, and have the treatment's DSCP.
	Between bool
}

// Promiser is implemented by the service that promises treatments. Its methods may be called
// concurrently.
type Promiser interface {
	// Loaded returns a channel that is closed once the promises made before the controller's start
	// have been read.
	Loaded() <-chan struct{}
	// Treatment returns the treatment of packets with these headers, or false if they have none.
	Treatment(openflow.Match) (Treatment, bool)
	// Queue returns the number of the queue for the packets at a port. It is zero if there is no
	// queue yet, or if the DSCP of the packets selects the queue.
	Queue(Carried) uint32
	// Carry tells the service by which ports packets of treatments leave switches now. A port that
	// has not been reported for some time counts as unused. Carry does not block.
	Carry([]Carried)
}

// Treatments connects a service that promises treatments with services that carry traffic, so that
// neither has to know the other. The zero value and nil have no promising service. Its methods may
// be called concurrently.
type Treatments struct {
	mu          sync.Mutex
	source      Promiser
	carriers    []string
	subscribers []func()
	epoch       uint64
}

// Promise sets the service that promises treatments.
func (t *Treatments) Promise(p Promiser) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.source = p
}

// Subscribe registers the owner of rules with this name as a carrier, and f to be called after
// each change of the promises. f must not block.
func (t *Treatments) Subscribe(carrier string, f func()) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.carriers, t.subscribers = append(t.carriers, carrier), append(t.subscribers, f)
}

// Carriers returns the names of the owners of rules that forward carried packets.
func (t *Treatments) Carriers() []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.carriers)
}

// Changed tells the carriers that the promises, or the ports at which they can be kept, have
// changed.
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

// Epoch returns a number that grows with each change.
func (t *Treatments) Epoch() uint64 {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch
}

// promiser returns the service that promises treatments, or nil.
func (t *Treatments) promiser() Promiser {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.source
}

// Await waits until the promises made before the controller's start have been read, or ctx ends.
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

// Of returns the treatment of packets with these headers, or the zero value if they have none.
func (t *Treatments) Of(m openflow.Match) Treatment {
	if p := t.promiser(); p != nil {
		if x, ok := p.Treatment(m); ok {
			return x
		}
	}
	return Treatment{}
}

// Queue returns the queue for packets of a treatment at a port, or zero if there is none.
func (t *Treatments) Queue(c Carried) uint32 {
	if p := t.promiser(); p != nil && c.Treatment != "" {
		return p.Queue(c)
	}
	return 0
}

// Carry reports ports by which packets of treatments are carried now. A port that has not been
// reported for some time counts as unused.
func (t *Treatments) Carry(all []Carried) {
	if p := t.promiser(); p != nil {
		p.Carry(all)
	}
}
