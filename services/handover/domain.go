package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/predict"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// host implements domain.Host, by which the protocol between domains uses this service.
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
			return fmt.Errorf("our device %s is not as described: %w", id, domain.ErrTaken)
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
	if d, known := h.registry.DeviceByIP(v.IP); known && d.ID != id || h.registry.Ours(v.IP) || h.answersFor(v.IP) {
		return fmt.Errorf("address %v: %w", v.IP, domain.ErrTaken)
	}
	return nil
}

// Prepare implements domain.Host.
func (h host) Prepare(ctx context.Context, v domain.Visit) error {
	if err := h.Check(v.Visitor); err != nil {
		return err
	}
	return h.queue.Do(ctx, v.ID, func(ctx context.Context) error {
		if v.Home != h.settings.Domain {
			if err := h.adopt(ctx, v); err != nil {
				return err
			}
		}
		return h.expect(ctx, v)
	})
}

// adopt registers a visitor.
func (h host) adopt(ctx context.Context, v domain.Visit) error {
	d := registry.Device{ID: v.ID, MACs: v.MACs, Home: v.Home, Class: visitorClass(v.Policy)}
	for _, p := range h.registry.Pools() {
		if p.Home == v.Home && p.Prefix.Contains(v.IP) {
			d.Pool = p.Name
		}
	}
	if d.Pool == "" {
		return fmt.Errorf("visitor %s: no pool with home %q contains %v, so devices of that domain cannot be told their router", v.ID, v.Home, v.IP)
	}
	err := h.registry.Adopt(ctx, d, v.IP)
	if errors.Is(err, registry.ErrConflict) {
		return fmt.Errorf("%w: %w", domain.ErrTaken, err)
	}
	return err
}

// expect prepares the place where a visitor, or a device of ours that comes home, will be, as far
// as that place is known.
func (h host) expect(ctx context.Context, v domain.Visit) error {
	d, ok := h.registry.Device(v.ID)
	if !ok {
		return domain.ErrNoDevice
	}
	op := h.placement.newOperation(d, v.IP, KindPrepare, "domain "+v.Via, h.now())
	h.change(func() { op.mobile.via = v.Via })
	next, known := h.predictor.headingPlace(v)
	l, _ := h.registry.Lease(v.ID)
	if !known {
		return nil
	}
	place := route.Place{At: next, MAC: cmp.Or(v.Heading.MAC, d.HomeMAC())}
	op.record.To = &Spot{Port: Port{next}, MAC: place.MAC}
	if l.Active(h.now()) && l.Attachment != nil {
		op.record.From = spotOf(l.Attachment)
		return h.placement.prepare(ctx, op, placeOf(l.Attachment), place, "", 0)
	}
	p, err := h.placement.plan(op, place)
	if err == nil {
		h.placement.recordPlan(op, &p)
		err = h.placement.applySteps(ctx, op, route.Steps(op.mobile.plan, p))
	}
	if err == nil {
		h.change(func() { op.mobile.advance(stepExpect) })
	}
	h.placement.finish(op, err)
	return err
}

// headingPlace returns the edge port where a visitor will be, if it is known.
func (s *predictor) headingPlace(v domain.Visit) (network.PortRef, bool) {
	if at := v.Heading.At; at != nil && s.whyNotAttachable(*at) == "" {
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

// Redirect implements domain.Host.
func (h host) Redirect(ctx context.Context, id, peer string, alone bool) error {
	i := slices.IndexFunc(h.settings.Borders, func(r Border) bool { return r.Peer == peer })
	if i < 0 {
		return fmt.Errorf("domain %q: no border port leads to it", peer)
	}
	to := &registry.Attachment{At: h.settings.Borders[i].At, Peer: peer}
	return h.queue.Do(ctx, id, func(ctx context.Context) error { return h.redirect(ctx, id, to, alone) })
}

// redirect does the work of Redirect, as a job of the device in the work queue.
func (h host) redirect(ctx context.Context, id string, to *registry.Attachment, alone bool) error {
	d, known := h.registry.Device(id)
	l, leased := h.registry.Lease(id)
	if !known || !leased || !l.Active(h.now()) {
		return domain.ErrNoDevice
	}
	if !alone {
		if l.Attachment == nil {
			return domain.ErrNoDevice
		}
		op := h.placement.newOperation(d, l.IP, KindPrepare, "domain "+to.Peer, h.now())
		op.record.From, op.record.To = spotOf(l.Attachment), spotOf(to)
		return h.placement.prepare(ctx, op, placeOf(l.Attachment), placeOf(to), to.Peer, 0)
	}
	op := h.placement.newOperation(d, l.IP, KindMove, "domain "+to.Peer, h.now())
	err := h.placement.serveAt(ctx, op, l.Attachment, to)
	if err == nil {
		err = h.registry.Lessor.SetAttachment(ctx, id, to)
	}
	op.record.Parts.Trigger = op.record.Parts.Tf
	h.placement.finish(op, err)
	return err
}

// Cancel implements domain.Host.
func (h host) Cancel(ctx context.Context, id string) error {
	return h.queue.Do(ctx, id, func(ctx context.Context) error {
		m := h.placement.mobileOf(id)
		h.change(func() { m.advance(stepArrive) })
		l, _ := h.registry.Lease(id)
		if l.Active(h.now()) && l.Attachment != nil {
			if m.second == nil {
				return nil
			}
			return h.placement.dropSecond(ctx, id, m, m.second)
		}
		return h.gone(ctx, id)
	})
}

// Forget implements domain.Host.
func (h host) Forget(ctx context.Context, id string) error {
	return h.queue.Do(ctx, id, func(ctx context.Context) error { return h.gone(ctx, id) })
}

// gone removes a device's rules and lease. A visitor is removed altogether.
func (h host) gone(ctx context.Context, id string) error {
	d, known := h.registry.Device(id)
	l, _ := h.registry.Lease(id)
	if err := h.placement.detach(ctx, id, l.IP, l.Attachment, "gone to another domain"); err != nil {
		return err
	}
	switch {
	case !known:
		return nil
	case d.Home != "":
		return h.registry.DeleteGuest(ctx, id)
	}
	if err := h.registry.Lessor.Release(ctx, id); err != nil && !errors.Is(err, registry.ErrNoLease) {
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
		return fmt.Errorf("%w: %w", domain.ErrNoEvidence, err)
	}
	if t := m.MessageType(); t != dhcpv4.MessageTypeDiscover && t != dhcpv4.MessageTypeRequest {
		return fmt.Errorf("%w: a %v does not show that a device is there", domain.ErrNoEvidence, t)
	}
	if err := h.packets.dhcp.Verify(d, m, e.Src, h.now()); err != nil {
		return fmt.Errorf("%w: %w", domain.ErrNoEvidence, err)
	}
	return nil
}

// Resume implements domain.Host.
func (h host) Resume(mac openflow.MAC) { h.packets.resume(mac) }

// connectNeighbours creates the protocol between domains, if neighbours are configured.
func (s *Service) connectNeighbours(o Options) error {
	if len(s.settings.Neighbours) == 0 {
		return nil
	}
	d, err := domain.New(domain.Options{
		Self: s.settings.Domain, Neighbours: s.settings.Neighbours, Host: host{s}, Store: o.Store,
		Emit: s.publish, Log: s.log, Timing: s.settings.Timing, Now: s.now, Dial: o.Dial,
	})
	if err != nil {
		return err
	}
	s.domain, s.origin, s.receiver = d, d.Origin, d.Receiver
	return nil
}
