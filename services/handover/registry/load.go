package registry

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

// Load reads everything from the store and applies the configured definitions to it. It is called
// once, before any other method; ctx must be that of Run. If data conflict, configured definitions
// take precedence over those of the API, and both take precedence over leases. Data that lose a
// conflict are logged and are not in force.
func (r *Registry) Load(ctx context.Context, configured Definitions) error {
	guests, err := store.ListJSON[Device](ctx, r.store, keyGuest)
	if err != nil {
		return fmt.Errorf("read the undeclared devices: %w", err)
	}
	leases, err := store.ListJSON[Lease](ctx, r.store, keyLease)
	if err != nil {
		return fmt.Errorf("read the leases: %w", err)
	}
	declined, err := store.ListJSON[decline](ctx, r.store, keyDecline)
	if err != nil {
		return fmt.Errorf("read the declined addresses: %w", err)
	}
	r.loadGuests(guests)
	// Devices first: the pools and classes that they use are kept.
	if err := r.DeviceItems.Load(ctx, configured.Devices); err != nil {
		return err
	}
	if err := r.PoolItems.Load(ctx, configured.Pools); err != nil {
		return err
	}
	if err := r.ClassItems.Load(ctx, configured.Classes); err != nil {
		return err
	}
	r.book.mu.Lock()
	for _, x := range r.ClassItems.Items() {
		r.book.classes[x.Name] = x.Value
	}
	for _, x := range r.PoolItems.Items() {
		r.book.addPool(x.Value.withDefaults())
	}
	r.book.mu.Unlock()
	for _, first := range []bool{true, false} {
		for _, x := range r.DeviceItems.Items() {
			if x.Configured == first {
				r.registerDeclared(ctx, x.Value)
			}
		}
	}
	return r.loadAddresses(ctx, leases, declined)
}

// loadGuests reads devices that nobody declared into memory.
func (r *Registry) loadGuests(guests map[string]Device) {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(guests)) {
		d := guests[id]
		if slices.ContainsFunc(d.MACs, func(m openflow.MAC) bool { return r.book.macs[m] != nil }) {
			r.log.Error("a stored device is ignored: another has its MAC address", "device", id)
			continue
		}
		if d.IP.IsValid() {
			r.book.claim(d.IP, id, forever)
		}
		r.book.addDevice(&record{stored: true}, d)
	}
}

// loadAddresses reads leases, active ones first. A lease whose address belongs to another device,
// or whose device no longer exists, is ended.
func (r *Registry) loadAddresses(ctx context.Context, leases map[string]Lease, declined map[string]decline) error {
	r.book.mu.Lock()
	var over []string
	for _, released := range []bool{false, true} {
		for _, id := range slices.Sorted(maps.Keys(leases)) {
			if l := leases[id]; l.Released == released && !r.book.loadLease(id, l) {
				over = append(over, id)
			}
		}
	}
	for text, q := range declined {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			r.log.Error("a stored declined address cannot be parsed", "address", text, "error", err)
			continue
		}
		r.book.declined[ip] = q
		a := r.book.address(ip)
		a.quarantined = q.Until
		reorder(a)
	}
	r.book.mu.Unlock()
	for _, id := range over {
		r.log.Warn("a stored lease is ended: its device no longer exists, or another device has its address", "device", id, "ip", leases[id].IP)
		if err := write(ctx, r.store, store.OpDelete(keyLease+id)); err != nil {
			return fmt.Errorf("end the lease of device %q: %w", id, err)
		}
	}
	return nil
}

// loadLease reads a lease into memory, and reports whether it is consistent with the rest. A lease
// that has ended is remembered if no other device has got the address since.
func (b *book) loadLease(id string, l Lease) bool {
	rec := b.devices[id]
	if rec == nil {
		return false
	}
	rec.signed = l.Signed
	if !l.IP.IsValid() {
		return true
	}
	if a := b.addrs[l.IP]; a != nil && a.device != id {
		return l.Released
	}
	rec.lease = l
	if !l.Released {
		b.claim(l.IP, id, forever)
		return true
	}
	now := b.now()
	b.claim(l.IP, id, now)
	b.rest(l.IP, id, now)
	return true
}
