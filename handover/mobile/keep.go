package mobile

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/device"
	"github.com/sluice-net/sluice/handover/mobile/lease"
)

const (
	leaseFile = "lease.json"
	// keepAgain is the wait after an interface could not be opened for renewal.
	keepAgain = time.Second
)

// accept takes in a lease: the virtual interface gets what it says.
func (d *Daemon) accept(l lease.Lease) {
	if d.lease != nil && d.lease.Address != l.Address {
		d.log.Warn("the device has another address: its connections end", "old", d.lease.Address, "new", l.Address)
		d.count.AddressChanges++
	}
	router := d.lease == nil || d.lease.Router != l.Router
	d.lease = &l
	if err := d.sys.configure(l); err != nil {
		d.log.Error("the virtual interface does not get what the lease says", "error", err)
	}
	if router {
		d.restartProbes()
	}
}

// keep renews the lease by the active interface from now on.
func (d *Daemon) keep() {
	if d.keeping != nil {
		d.keeping.cancel()
	}
	ctx, cancel := context.WithCancel(d.ctx)
	t := &task{cancel}
	d.keeping = t
	i, l := d.active, *d.lease
	index, mac := i.link.Index, i.mac()
	d.wg.Go(func() {
		defer cancel()
		for {
			renewed, err := d.extend(ctx, index, lease.Port{MAC: mac}, l)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				d.post(ctx, func() { d.leaseLost(t, err) })
				return
			}
			l = renewed
			d.post(ctx, func() { d.renewed(t, renewed) })
		}
	})
}

// extend waits until a lease wants to be renewed and renews it.
func (d *Daemon) extend(ctx context.Context, index int, p lease.Port, l lease.Lease) (lease.Lease, error) {
	wait := time.Until(l.Renew)
	for {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return lease.Lease{}, ctx.Err()
		}
		socket, err := d.sys.dhcp(index)
		if err == nil {
			p.Conn = socket
			renewed, err := d.client.Extend(ctx, p, l)
			return renewed, errors.Join(err, socket.Close())
		}
		if !l.Valid(time.Now()) {
			return lease.Lease{}, lease.ErrExpired
		}
		wait = keepAgain
	}
}

func (d *Daemon) renewed(t *task, l lease.Lease) {
	if d.keeping != t {
		return
	}
	d.log.Debug("lease renewed", "address", l.Address, "expires", l.Expires)
	d.count.Renewals++
	d.accept(l)
	d.saveLease()
}

// leaseLost takes the address off the virtual interface, and asks for another.
func (d *Daemon) leaseLost(t *task, err error) {
	if d.keeping != t {
		return
	}
	d.keeping = nil
	d.log.Error("the lease is lost", "address", d.lease.Address, "error", err)
	d.count.LeasesLost++
	if err := d.sys.unconfigure(); err != nil {
		d.log.Warn("the virtual interface keeps an address that has expired", "error", err)
	}
	d.lease = nil
	d.saveLease()
	for _, i := range d.interfaces {
		i.joined = false
		i.stopProbe()
	}
	d.decide()
}

// releaseLease gives the lease back at the end, if that is wanted.
func (d *Daemon) releaseLease() {
	if !d.cfg.Release || d.lease == nil || d.active == nil || !d.active.usable() {
		return
	}
	socket, err := d.sys.dhcp(d.active.link.Index)
	if err == nil {
		err = errors.Join(d.client.Release(lease.Port{Conn: socket, MAC: d.active.mac()}, *d.lease), socket.Close())
	}
	if err != nil {
		d.log.Warn("the lease is not released", "error", err)
		return
	}
	d.lease = nil
	d.saveLease()
}

// loadLease reads the lease that an earlier daemon had.
func (d *Daemon) loadLease() {
	b, err := os.ReadFile(filepath.Join(d.cfg.StateDir, leaseFile))
	if err != nil {
		return // there is none
	}
	var l lease.Lease
	if err := json.Unmarshal(b, &l); err != nil || !l.Valid(time.Now()) {
		return // of no use any more; the first lease replaces it
	}
	d.lease = &l
}

// saveLease writes the lease for the next daemon.
func (d *Daemon) saveLease() {
	path := filepath.Join(d.cfg.StateDir, leaseFile)
	if d.lease == nil {
		_ = os.Remove(path) // one that stays has expired, which the next daemon sees
		return
	}
	b, err := json.MarshalIndent(d.lease, "", "  ")
	if err == nil {
		err = device.WriteFile(path, append(b, '\n'), 0o600)
	}
	if err != nil {
		d.log.Warn("the lease is not saved", "error", err)
	}
}
