package handover

import (
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/route"
)

// anchored returns the border ports by which all traffic of a device comes and goes, wherever the
// device is. It returns false for an address whose device has no rules.
func (s *guards) anchored(ip netip.Addr) (network.Anchor, bool) {
	d, known := s.registry.DeviceByIP(ip)
	pin, kept := s.PlaceOf(openflow.MAC{}, ip)
	if !known || !kept {
		return network.Anchor{}, false
	}
	s.mu.Lock()
	m := s.placement.mobiles[d.ID]
	led := m != nil && m.state != detached
	a := network.Anchor{MAC: d.HomeMAC(), Place: pin}
	var want route.Want
	if led {
		want, a.Path = m.plan.Want(), m.plan.PathTo(pin.At)
	}
	s.mu.Unlock()
	for _, r := range want.Borders {
		a.Borders = append(a.Borders, r.At)
	}
	return a, led
}

// moving returns the prefixes of hosts that may be devices of ours, and the border ports through
// which all their traffic passes.
func (s *guards) moving() network.Moving {
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
