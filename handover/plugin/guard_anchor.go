package plugin

import (
	"net/netip"

	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Anchored tells the network by which border ports all traffic of a device comes and goes,
// wherever the device is. It is false for one that nothing leads.
func (s *guards) Anchored(ip netip.Addr) (network.Anchor, bool) {
	d, known := s.registry.DeviceByIP(ip)
	pin, kept := s.Keeps(openflow.MAC{}, ip)
	if !known || !kept {
		return network.Anchor{}, false
	}
	s.mu.Lock()
	m := s.mobiles[d.ID]
	led := m != nil && m.state != nowhere
	a := network.Anchor{MAC: d.HomeMAC(), Place: pin}
	var want route.Want
	if led {
		want, a.Way = m.plan.Want(), m.plan.Way(pin.At)
	}
	s.mu.Unlock()
	for _, r := range want.Borders {
		a.Borders = append(a.Borders, r.At)
	}
	return a, led
}

// Moving tells the network which hosts may be devices of ours, and where all that they
// send and get passes.
func (s *guards) Moving() network.Moving {
	v := s.view.Load()
	if v == nil {
		return network.Moving{}
	}
	m := network.Moving{Prefixes: v.given}
	for _, b := range s.settings.Borders {
		if b.Peer == "" {
			m.Borders = append(m.Borders, b.At)
		}
	}
	return m
}
