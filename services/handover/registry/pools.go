package registry

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/kit"
)

// poolsChanged applies changes of declared pools.
func (r *Registry) poolsChanged(ctx context.Context, changes []kit.Change[Pool]) {
	r.book.mu.Lock()
	for _, x := range changes {
		if old := r.book.pools[x.Name]; x.After == nil && old != nil {
			r.book.clearAllocator(old)
			delete(r.book.pools, x.Name)
		}
	}
	for _, x := range changes {
		if x.After != nil {
			r.book.addPool(x.After.Value.withDefaults())
		}
	}
	r.book.mu.Unlock()
	r.changed(ctx, nil)
}

// planPool checks that a new or changed pool fits the other pools and the leases. Until the change has
// been written, it also prevents leases of addresses that the changed pool does not contain.
func (r *Registry) planPool(p Pool) error {
	if err := refusal(p.faults(), ErrInvalid, "pool", p.Name); err != nil {
		return err
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	if err := refusal(append(r.book.poolFaults(p), r.book.poolHolds(p)...), ErrConflict, "pool", p.Name); err != nil {
		return err
	}
	if old := r.book.pools[p.Name]; old != nil {
		old.replacement = &p
	}
	return nil
}

// abandonPool gives up a change of a pool that could not be written.
func (r *Registry) abandonPool(name string) {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	if old := r.book.pools[name]; old != nil {
		old.replacement = nil
	}
}

// addPool makes the pool visible.
func (b *book) addPool(p Pool) {
	if old := b.pools[p.Name]; old != nil {
		b.clearAllocator(old)
	}
	n := &pool{Pool: p}
	b.pools[p.Name] = n
	if p.Home == "" {
		b.resetAllocator(n)
	}
}

// poolFaults returns the faults of a pool that conflicts with other pools.
func (b *book) poolFaults(p Pool) kit.Faults {
	var f kit.Faults
	if old := b.pools[p.Name]; old != nil {
		f.Check(old.Home == p.Home, "home", p.Home, "%q, as it is: delete the pool first", old.Home)
	}
	if _, ok := b.classes[p.Class]; !ok && p.Class != "" {
		f.Add("class", p.Class, "one of the classes: %s", names(b.classes))
	}
	for _, o := range b.pools {
		if o.Name != p.Name {
			checkPoolsFit(&f, p, o.Pool)
		}
	}
	return f
}

// poolHolds returns a fault for each device whose address the pool would not contain.
func (b *book) poolHolds(p Pool) kit.Faults {
	var f kit.Faults
	for id, rec := range b.devices {
		if rec.device.Pool != p.Name {
			continue
		}
		for _, ip := range rec.addresses() {
			f.Check(p.usable(ip), "prefix", p.Prefix, "a network in which device %q can have its address %v", id, ip)
			f.Check(ip != p.Gateway, "gateway", p.Gateway, "an address that no device has: this is that of %q", id)
			f.Check(ip != p.Server, "server", p.Server, "an address that no device has: this is that of %q", id)
		}
	}
	return f
}

// checkPoolsFit adds a fault for each way in which two pools of different names conflict.
func checkPoolsFit(f *kit.Faults, p, o Pool) {
	if !p.Prefix.Overlaps(o.Prefix) {
		return
	}
	if p.Home != o.Home || p.Prefix != o.Prefix {
		f.Add("prefix", p.Prefix, "a network apart from %v of pool %q, or just that one", o.Prefix, o.Name)
		return
	}
	if p.Home == "" && !p.Last.Less(o.First) && !o.Last.Less(p.First) {
		f.Add("first", p.First, "a range apart from %v to %v of pool %q", o.First, o.Last, o.Name)
	}
}

// poolInUse returns an error that names a device that belongs to the pool, or nil.
func (r *Registry) poolInUse(name string) error {
	return r.inUse(func(d Device) bool { return d.Pool == name })
}

// learningPool is LearningPool for callers that hold the lock.
func (b *book) learningPool() (Pool, bool) {
	var found *pool
	for _, p := range b.pools {
		if p.Learn && (found == nil || p.Name < found.Name) {
			found = p
		}
	}
	if found == nil {
		return Pool{}, false
	}
	return found.Pool, true
}

// onlyPool is OnlyPool for callers that hold the lock.
func (b *book) onlyPool() (found string) {
	for _, p := range b.pools {
		switch {
		case p.Home != "":
		case found != "":
			return ""
		default:
			found = p.Name
		}
	}
	return found
}

// ours returns our own pool whose network contains the address, or nil.
func (b *book) ours(ip netip.Addr) *pool {
	for _, p := range b.pools {
		if p.Home == "" && p.Prefix.Contains(ip) {
			return p
		}
	}
	return nil
}

// Usage holds the numbers of a pool's addresses that are in use.
type Usage struct {
	// Size is the number of addresses that the pool gives out, and Held the number of those that
	// are not free now. Quarantined is the number of those in quarantine, which Held includes.
	Size, Held, Quarantined int
}

// Usage returns the usage of our own pools, by their names.
func (r *Registry) Usage() map[string]Usage {
	now := r.book.now()
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	out := map[string]Usage{}
	for name, p := range r.book.pools {
		if p.Home != "" {
			continue
		}
		u := Usage{Size: p.size()}
		for _, a := range p.allocator.heap {
			if now.Before(a.ends()) {
				u.Held++
			}
			if now.Before(a.quarantined) {
				u.Quarantined++
			}
		}
		out[name] = u
	}
	return out
}

// size returns the number of addresses that the pool gives out.
func (p Pool) size() int {
	n := span(p.First, p.Last)
	within := func(a netip.Addr) bool { return !a.Less(p.First) && !p.Last.Less(a) }
	if within(p.Gateway) {
		n--
	}
	if p.Server.IsValid() && p.Server != p.Gateway && within(p.Server) {
		n--
	}
	return n
}

// names lists the keys of a map for a message.
func names[V any](m map[string]V) string {
	var out []string
	for n := range m {
		out = append(out, n)
	}
	if len(out) == 0 {
		return "none is registered yet"
	}
	slices.Sort(out)
	return strings.Join(out[:min(len(out), 8)], ", ")
}
