package classes

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// promiser implements network.Promiser. It informs the services that carry connections (that is,
// forward their packets under other headers) about classes.
type promiser struct {
	classes *table
	loaded  <-chan struct{}
	updates kit.Loop // woken when a class needs its queue at another port
}

// Loaded returns a channel that is closed once the stored state has been read.
func (p *promiser) Loaded() <-chan struct{} { return p.loaded }

// classFlow is a flow of a class, as an entry of the index.
type classFlow struct {
	*entry
	flow *Flow
}

// index holds the flows of classes by their destinations. Flows of higher priority come first.
type index map[End][]classFlow

// reindex rebuilds the index from the present classes. The lock is held.
func (t *table) reindex() {
	now := index{}
	for _, e := range t.sorted() {
		if e.state == StateProvisioning {
			continue
		}
		for i := range e.class.Flows {
			f := &e.class.Flows[i]
			now[f.Dst] = append(now[f.Dst], classFlow{e, f})
		}
	}
	for _, all := range now {
		slices.SortStableFunc(all, func(a, b classFlow) int { return cmp.Compare(a.class.Priority, b.class.Priority) })
	}
	t.index.Store(&now)
}

// find returns the flow of the highest priority that may contain a packet with the headers m.
func (x index) find(m openflow.Match) (first classFlow, ok bool) {
	byIP := hostOf(m, openflow.FieldIPv4Dst, openflow.FieldIPv6Dst)
	byMAC := hostOf(m, openflow.FieldEthDst)
	for _, end := range []End{byIP, byMAC} {
		for _, t := range x[end] {
			if slices.ContainsFunc(t.flow.Matches, m.Overlaps) {
				if !ok || t.class.Priority < first.class.Priority {
					first, ok = t, true
				}
				break
			}
		}
	}
	return first, ok
}

// Treatment returns the treatment by the class to which packets with the headers m belong, and
// reports whether there is one.
func (p *promiser) Treatment(m openflow.Match) (network.Treatment, bool) {
	t, ok := p.classes.index.Load().find(m)
	if !ok {
		return network.Treatment{}, false
	}
	p.classes.mu.Lock()
	defer p.classes.mu.Unlock()
	if p.classes.byName[t.class.Name] != t.entry {
		return network.Treatment{}, false
	}
	own := t.flow.dscp()
	if t.mark != 0 { // a userspace datapath restores a single DSCP, so packets with others are not in the class there
		own = t.own
		if o, known := m.Get(openflow.FieldIPDSCP); known && uint8(o.Uint()) != own {
			return network.Treatment{}, false
		}
	}
	t.carriage.asked = time.Now()
	if t.carriage.dscp == 0 {
		t.carriage.dscp = p.classes.freeDSCP()
	}
	return network.Treatment{Name: t.class.Name, DSCP: t.carriage.dscp, Own: own}, true
}

// Queue returns the queue into which carried packets have to be put at a port; zero if there is
// none.
func (p *promiser) Queue(c network.Carried) uint32 {
	p.classes.mu.Lock()
	defer p.classes.mu.Unlock()
	if e := p.classes.byName[c.Treatment]; e != nil && !(c.Between && e.userspace[c.At.Switch]) {
		if at := e.carriage.ports[c.At]; at != nil && at.ready {
			return e.queue
		}
	}
	return 0
}

// Carry records at which ports packets of classes are carried.
func (p *promiser) Carry(all []network.Carried) {
	now, news := time.Now(), false
	p.classes.mu.Lock()
	for _, c := range all {
		if e := p.classes.byName[c.Treatment]; e != nil && e.state != StateProvisioning {
			news = e.carriage.markUsed(c, now) || news
		}
	}
	p.classes.mu.Unlock()
	if news {
		p.updates.Wake()
	}
}
