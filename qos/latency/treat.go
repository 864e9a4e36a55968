package latency

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

var _ network.Promiser = (*Service)(nil)

// treated is a flow of a class as it is found by the headers of a packet.
type treated struct {
	*entry
	flow *Flow
}

// index has the flows of classes by their destinations, those of high priority first.
type index map[End][]treated

// reindex makes the index that of the classes that there are. The lock is held.
func (s *Service) reindex() {
	now := index{}
	for _, e := range s.sortedClasses() {
		if e.state == StateProvisioning {
			continue
		}
		for i := range e.class.Flows {
			f := &e.class.Flows[i]
			now[f.Dst] = append(now[f.Dst], treated{e, f})
		}
	}
	for _, all := range now {
		slices.SortStableFunc(all, func(a, b treated) int { return cmp.Compare(a.class.Priority, b.class.Priority) })
	}
	s.index.Store(&now)
}

// find is the first flow that has packets of which these headers are known.
func (x index) find(m openflow.Match) (first treated, ok bool) {
	byIP := endOf(m, openflow.FieldIPv4Dst, openflow.FieldIPv6Dst)
	byMAC := endOf(m, openflow.FieldEthDst)
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

// Treatment implements network.Promiser: it is that of the class of such packets.
func (s *Service) Treatment(m openflow.Match) (network.Treatment, bool) {
	t, ok := s.index.Load().find(m)
	if !ok {
		return network.Treatment{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.classes[t.class.Name] != t.entry {
		return network.Treatment{}, false
	}
	own := uint8(0)
	if t.flow.DSCP != nil {
		own = *t.flow.DSCP
	}
	if t.mark != 0 { // a userspace datapath gives packets one DSCP back: others are not in the class there
		own = t.own
		if o, known := m.Get(openflow.FieldIPDSCP); known && uint8(o.Uint()) != own {
			return network.Treatment{}, false
		}
	}
	t.carriage.asked = time.Now()
	if t.carriage.dscp == 0 {
		t.carriage.dscp = s.freeDSCP()
	}
	return network.Treatment{Name: t.class.Name, DSCP: t.carriage.dscp, Own: own}, true
}

// freeDSCP finds one for packets between carriers that means nothing else in the network;
// zero if there is none left. Those that were given up last come last: packets on their way
// may bear them still. The lock is held.
func (s *Service) freeDSCP() uint8 {
	taken := map[uint8]bool{}
	for _, e := range s.classes {
		taken[e.mark], taken[e.carriage.dscp] = true, true
		for _, f := range e.class.Flows {
			if f.DSCP != nil {
				taken[*f.DSCP] = true
			}
		}
	}
	for range marks {
		s.lastDSCP = (s.lastDSCP + len(marks) - 1) % len(marks)
		if m := marks[s.lastDSCP]; !taken[m] {
			return m
		}
	}
	return 0
}

// Queue implements network.Promiser.
func (s *Service) Queue(c network.Carried) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.classes[c.Treatment]
	if e == nil {
		return 0
	}
	p := e.carriage.ports[c.At]
	if p == nil || !p.ready || c.Between && e.userspace[c.At.Switch] {
		return 0
	}
	return e.queue
}

// Carry implements network.Promiser.
func (s *Service) Carry(all []network.Carried) {
	now, news := time.Now(), false
	s.mu.Lock()
	for _, c := range all {
		if e := s.classes[c.Treatment]; e != nil && e.state != StateProvisioning {
			news = e.carriage.use(c, now) || news
		}
	}
	s.mu.Unlock()
	if news {
		s.placing.Wake()
	}
}
