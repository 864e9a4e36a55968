package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/handover/dhcp"
	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/handover/predict"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// host is the domain that the protocol between domains works for.
type host struct{ *Service }

var _ domain.Host = host{}

// Device implements domain.Host.
func (h host) Device(id string) (domain.Known, bool) {
	d, ok := h.registry.Device(id)
	if !ok || !h.ipOf(d).IsValid() {
		return domain.Known{}, false
	}
	l, _ := h.registry.Lease(id)
	class := h.registry.ClassOf(d)
	k := domain.Known{Overlap: class.Overlap}
	if k.Here = l.Active(h.now()) && l.Attachment != nil && l.Attachment.Peer == ""; k.Here {
		k.Place = domain.Place{At: l.Attachment.At, MAC: l.Attachment.MAC}
	}
	if h.domain != nil && d.Home != "" {
		if r, ok := h.domain.Record(id); ok {
			k.Visitor = r.Visitor
			return k, true
		}
	}
	k.Visitor = domain.Visitor{
		Home: d.Home, Device: strings.TrimSuffix(id, "@"+d.Home), MACs: slices.Clone(d.MACs), IP: h.ipOf(d),
		Policy: class.Policy, Signed: len(d.Key) > 0,
	}
	if k.Home == "" {
		k.Home = h.settings.Domain
	}
	return k, true
}

// ipOf is the device's address: the one it has, else the one it is bound to.
func (s *Service) ipOf(d registry.Device) netip.Addr {
	if l, ok := s.registry.Lease(d.ID); ok && l.Active(s.now()) {
		return l.IP
	}
	return d.IP
}

// DeviceByMAC implements domain.Host.
func (h host) DeviceByMAC(mac openflow.MAC) (domain.Known, bool) {
	d, ok := h.registry.DeviceByMAC(mac)
	if !ok {
		return domain.Known{}, false
	}
	return h.Device(d.ID)
}

// Check implements domain.Host.
func (h host) Check(v domain.Visitor) error {
	id := v.LocalID(h.settings.Domain)
	own, ours := h.registry.Device(id)
	if v.Home == h.settings.Domain {
		if !ours || h.ipOf(own) != v.IP || !slices.Equal(own.MACs, v.MACs) {
			return fmt.Errorf("device %s of ours is not as described: %w", id, domain.ErrTaken)
		}
		return nil
	}
	for _, m := range v.MACs {
		d, known := h.registry.DeviceByMAC(m)
		l, _ := h.registry.Lease(d.ID)
		if known && d.ID != id && (!d.Learned || l.Active(h.now())) {
			return fmt.Errorf("MAC address %v: %w", m, domain.ErrTaken)
		}
	}
	if d, known := h.registry.DeviceByIP(v.IP); known && d.ID != id || h.registry.Ours(v.IP) || h.serves(v.IP) {
		return fmt.Errorf("address %v: %w", v.IP, domain.ErrTaken)
	}
	return nil
}

// serves says whether the address is one that the service itself answers for.
func (s *Service) serves(ip netip.Addr) bool {
	v := s.view.Load()
	if v == nil {
		return false
	}
	_, gateway := v.gateways[ip]
	return gateway || v.servers[ip]
}

// Prepare implements domain.Host.
func (h host) Prepare(ctx context.Context, v domain.Visit) error {
	if err := h.Check(v.Visitor); err != nil {
		return err
	}
	return h.lanes.do(ctx, v.ID, func(ctx context.Context) error {
		if v.Home != h.settings.Domain {
			if err := h.adopt(ctx, v); err != nil {
				return err
			}
		}
		return h.expect(ctx, v)
	})
}

// adopt registers a visitor.
func (s *Service) adopt(ctx context.Context, v domain.Visit) error {
	d := registry.Device{ID: v.ID, MACs: v.MACs, Home: v.Home, Class: visitorClass(v.Policy)}
	for _, p := range s.registry.Pools() {
		if p.Home == v.Home && p.Prefix.Contains(v.IP) {
			d.Pool = p.Name
		}
	}
	if d.Pool == "" {
		return fmt.Errorf("visitor %s: no pool with home %q has %v: devices of that domain cannot be told their router", v.ID, v.Home, v.IP)
	}
	err := s.registry.Adopt(ctx, d, v.IP)
	if errors.Is(err, registry.ErrConflict) {
		return fmt.Errorf("%w: %w", domain.ErrTaken, err)
	}
	return err
}

// expect prepares the place where a visitor, or a device of ours that comes
// home, will be, as far as that is known.
func (s *Service) expect(ctx context.Context, v domain.Visit) error {
	d, ok := s.registry.Device(v.ID)
	if !ok {
		return domain.ErrNoDevice
	}
	t := s.newTrip(d, v.IP, KindPrepare, "domain "+v.Via, s.now())
	s.change(func() { t.m.via, t.m.expected = v.Via, true })
	next, known := s.headingPlace(v)
	l, _ := s.registry.Lease(v.ID)
	if !known {
		return nil
	}
	place := route.Place{At: next, MAC: cmp.Or(v.Heading.MAC, d.HomeMAC())}
	t.rec.To = &Spot{Port: Port{next}, MAC: place.MAC}
	if l.Active(s.now()) && l.Attachment != nil {
		t.rec.From = spotOf(l.Attachment)
		return s.prepare(ctx, t, placeOf(l.Attachment), place, "", 0)
	}
	p, err := s.plan(t, place)
	if err == nil {
		s.describe(t, &p)
		err = s.follow(ctx, t, route.Steps(t.m.plan, p))
	}
	s.ended(t, err)
	return err
}

// headingPlace is the edge port where a visitor will be.
func (s *Service) headingPlace(v domain.Visit) (network.PortRef, bool) {
	if at := v.Heading.At; at != nil && s.net.Topology().Has(at.Switch) && s.net.Topology().IsEdge(*at) && !s.isRoot(*at) {
		return *at, true
	}
	m := v.Heading.Motion
	if m == nil || s.coverage == nil {
		return network.PortRef{}, false
	}
	motion, err := s.motionOf(m.X, m.Y, m.Lat, m.Lon)
	if err != nil {
		return network.PortRef{}, false
	}
	motion.Speed, motion.Heading, motion.Time = m.Speed, m.Heading, m.Time
	choice, err := s.coverage.Predict(motion, network.PortRef{}, predict.Choice{}, 0, s.now(), s.settings.Predict)
	return choice.Next, err == nil && !choice.None()
}

func (s *Service) isRoot(at network.PortRef) bool {
	return slices.ContainsFunc(s.settings.Roots, func(r Root) bool { return r.At == at })
}

// Redirect implements domain.Host.
func (h host) Redirect(ctx context.Context, id, peer string, alone bool) error {
	i := slices.IndexFunc(h.settings.Roots, func(r Root) bool { return r.Peer == peer })
	if i < 0 {
		return fmt.Errorf("domain %q: no root leads to it", peer)
	}
	to := &registry.Attachment{At: h.settings.Roots[i].At, Peer: peer}
	return h.lanes.do(ctx, id, func(ctx context.Context) error { return h.redirect(ctx, id, to, alone) })
}

func (s *Service) redirect(ctx context.Context, id string, to *registry.Attachment, alone bool) error {
	d, known := s.registry.Device(id)
	l, leased := s.registry.Lease(id)
	if !known || !leased || !l.Active(s.now()) {
		return domain.ErrNoDevice
	}
	if !alone {
		if l.Attachment == nil {
			return domain.ErrNoDevice
		}
		t := s.newTrip(d, l.IP, KindPrepare, "domain "+to.Peer, s.now())
		t.rec.From, t.rec.To = spotOf(l.Attachment), spotOf(to)
		return s.prepare(ctx, t, placeOf(l.Attachment), placeOf(to), to.Peer, 0)
	}
	t := s.newTrip(d, l.IP, KindMove, "domain "+to.Peer, s.now())
	err := s.place(ctx, t, l.Attachment, to)
	if err == nil {
		err = s.registry.SetAttachment(ctx, id, to)
	}
	t.rec.Parts.Trigger = t.rec.Parts.Tf
	s.ended(t, err)
	return err
}

// Cancel implements domain.Host.
func (h host) Cancel(ctx context.Context, id string) error {
	return h.lanes.do(ctx, id, func(ctx context.Context) error {
		m := h.mobileOf(id)
		h.change(func() { m.expected = false })
		l, _ := h.registry.Lease(id)
		if l.Active(h.now()) && l.Attachment != nil {
			if m.second == nil {
				return nil
			}
			return h.alone(ctx, id, m, m.second)
		}
		return h.gone(ctx, id)
	})
}

// Forget implements domain.Host.
func (h host) Forget(ctx context.Context, id string) error {
	return h.lanes.do(ctx, id, func(ctx context.Context) error { return h.gone(ctx, id) })
}

// gone removes a device's rules and lease, and a visitor altogether.
func (s *Service) gone(ctx context.Context, id string) error {
	d, known := s.registry.Device(id)
	l, _ := s.registry.Lease(id)
	if err := s.detach(ctx, id, l.IP, l.Attachment, "gone to another domain"); err != nil {
		return err
	}
	switch {
	case !known:
		return nil
	case d.Home != "":
		return s.registry.DeleteGuest(ctx, id)
	}
	if err := s.registry.Release(ctx, id); err != nil && !errors.Is(err, registry.ErrNoLease) {
		return err
	}
	return nil
}

// Verify implements domain.Host.
func (h host) Verify(_ context.Context, id string, e domain.Evidence) error {
	d, ok := h.registry.Device(id)
	if !ok {
		return domain.ErrNoDevice
	}
	m, err := dhcp.Decode(e.Message)
	if err != nil {
		return fmt.Errorf("%w: %w", domain.ErrUnproven, err)
	}
	if t := m.MessageType(); t != dhcpv4.MessageTypeDiscover && t != dhcpv4.MessageTypeRequest {
		return fmt.Errorf("%w: a %v says that a device leaves, not that it is there", domain.ErrUnproven, t)
	}
	if err := h.dhcp.Verify(d, m, e.Src, h.now()); err != nil {
		return fmt.Errorf("%w: %w", domain.ErrUnproven, err)
	}
	return nil
}

// Resume implements domain.Host.
func (h host) Resume(mac openflow.MAC) { h.resume(mac) }
