package mobile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
)

const (
	leaseFile = "lease.json"
	// reopenInterval is the wait after an interface could not be opened for renewal.
	reopenInterval = time.Second
)

// leaseholder holds the device's lease. Only the loop uses its fields, except in the goroutine of
// startRenewal.
type leaseholder struct {
	d      *Daemon
	client *lease.Client
	lease  *lease.Lease // nil for none
	// configured reports whether the virtual interface has been configured by a lease.
	configured bool
	// renewal is the goroutine that renews the lease, or nil.
	renewal *task
}

// router returns the gateway that the lease names, if there is one.
func (h *leaseholder) router() (netip.Addr, bool) {
	if h.lease == nil {
		return netip.Addr{}, false
	}
	return h.lease.Router, h.lease.Router.IsValid()
}

// accept makes l the device's lease, and configures the virtual interface by it.
func (h *leaseholder) accept(l lease.Lease) {
	if h.lease != nil && h.lease.Address != l.Address {
		h.d.log.Warn("the device has another address: its connections end", "old", h.lease.Address, "new", l.Address)
		h.d.count.AddressChanges++
	}
	router := h.lease == nil || h.lease.Router != l.Router
	h.lease = &l
	h.configure()
	if router {
		h.d.restartProbes()
	}
}

// configure configures the virtual interface by the lease.
func (h *leaseholder) configure() {
	err := h.d.sys.configure(*h.lease)
	h.configured = err == nil
	if err != nil {
		h.d.log.Error("the virtual interface could not be configured by the lease", "error", err)
	}
}

// join gets a lease on an interface.
func (h *leaseholder) join(ctx context.Context, p lease.Port, known *lease.Lease) (lease.Lease, error) {
	l, err := h.client.Attach(ctx, p, known)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w in %v", lease.ErrSilence, h.d.cfg.AttachTimeout)
	}
	return l, err
}

// startRenewal renews the lease on an interface from now on.
func (h *leaseholder) startRenewal(i *iface) {
	if h.renewal != nil {
		h.renewal.cancel()
	}
	ctx, cancel := context.WithCancel(h.d.ctx)
	t := &task{cancel}
	h.renewal = t
	l := *h.lease
	index, mac := i.link.Index, i.mac()
	h.d.wg.Go(func() {
		defer cancel()
		for {
			renewed, err := h.extend(ctx, index, lease.Port{MAC: mac}, l)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				h.d.inbox.post(ctx, func() { h.leaseLost(t, err) })
				return
			}
			l = renewed
			h.d.inbox.post(ctx, func() { h.renewed(t, renewed) })
		}
	})
}

// extend waits until a lease has to be renewed and renews it.
func (h *leaseholder) extend(ctx context.Context, index int, p lease.Port, l lease.Lease) (lease.Lease, error) {
	wait := time.Until(l.Renew)
	for {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return lease.Lease{}, ctx.Err()
		}
		socket, err := h.d.sys.dhcp(index)
		if err == nil {
			p.Conn = socket
			renewed, err := h.client.Extend(ctx, p, l)
			return renewed, errors.Join(err, socket.Close())
		}
		if !l.Valid(time.Now()) {
			return lease.Lease{}, lease.ErrExpired
		}
		wait = reopenInterval
	}
}

// renewed handles a renewed lease.
func (h *leaseholder) renewed(t *task, l lease.Lease) {
	if h.renewal != t {
		return
	}
	h.d.log.Debug("lease renewed", "address", l.Address, "expires", l.Expires)
	h.d.count.Renewals++
	h.accept(l)
	h.save()
}

// leaseLost removes the address from the virtual interface, and starts to get another.
func (h *leaseholder) leaseLost(t *task, err error) {
	if h.renewal != t {
		return
	}
	h.renewal = nil
	h.d.log.Error("the lease is lost", "address", h.lease.Address, "error", err)
	h.d.count.LeasesLost++
	if err := h.d.sys.unconfigure(); err != nil {
		h.d.log.Warn("an expired address could not be removed from the virtual interface", "error", err)
	}
	h.lease, h.configured = nil, false
	h.save()
	for _, i := range h.d.interfaces {
		i.joined = false
		i.stopProbe()
	}
	h.d.decide()
}

// release releases the lease at the end, if that is configured.
func (h *leaseholder) release() {
	if !h.d.cfg.Release || h.lease == nil || h.d.active == nil || !h.d.active.usable() {
		return
	}
	socket, err := h.d.sys.dhcp(h.d.active.link.Index)
	if err == nil {
		err = errors.Join(h.client.Release(lease.Port{Conn: socket, MAC: h.d.active.mac()}, *h.lease), socket.Close())
	}
	if err != nil {
		h.d.log.Warn("the lease could not be released", "error", err)
		return
	}
	h.lease = nil
	h.save()
}

// load reads the lease of an earlier daemon.
func (h *leaseholder) load() {
	b, err := os.ReadFile(filepath.Join(h.d.cfg.StateDir, leaseFile))
	if err != nil {
		return // there is none
	}
	var l lease.Lease
	if err := json.Unmarshal(b, &l); err != nil || !l.Valid(time.Now()) {
		return // the file is not usable; the first lease replaces it
	}
	h.lease = &l
}

// save writes the lease for the next daemon.
func (h *leaseholder) save() {
	path := filepath.Join(h.d.cfg.StateDir, leaseFile)
	if h.lease == nil {
		_ = os.Remove(path) // a file that stays holds an expired lease, which the next daemon ignores
		return
	}
	b, err := json.MarshalIndent(h.lease, "", "  ")
	if err == nil {
		err = wholefile.Replace(path, append(b, '\n'), 0o600)
	}
	if err != nil {
		h.d.log.Warn("the lease could not be saved", "error", err)
	}
}

// setNeighbour tells the kernel the gateway's MAC address in the device's present network.
func (h *leaseholder) setNeighbour(mac openflow.MAC) {
	router, ok := h.router()
	if !ok {
		return
	}
	if err := h.d.sys.neighbour(router, mac); err != nil {
		h.d.log.Debug("the gateway's address could not be set", "error", err)
	}
}
