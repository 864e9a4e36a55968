package registry

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/service"
)

// PutPool adds or replaces a pool. A pool without First and Last gives out the
// whole of its prefix. One that stands in the configuration is replaced by such a
// one alone.
func (r *Registry) PutPool(ctx context.Context, p Pool) error {
	p = p.filled()
	if err := refusal(p.faults(), ErrInvalid, "pool", p.Name); err != nil {
		return err
	}
	p.DNS = slices.Clone(p.DNS)
	r.admin.Lock()
	defer r.admin.Unlock()
	if old, ok := r.Pool(p.Name); ok && old.Configured && !p.Configured {
		return fmt.Errorf("pool %q: %w", p.Name, ErrConfigured)
	}
	return r.storePool(ctx, p)
}

// storePool checks that a pool fits, writes it and makes it visible. r.admin is
// locked.
func (r *Registry) storePool(ctx context.Context, p Pool) error {
	if err := r.planPool(p); err != nil {
		return err
	}
	err := r.put(ctx, keyPool+p.Name, p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.addPool(p)
	} else if old := r.pools[p.Name]; old != nil {
		old.coming = nil
	}
	return err
}

// planPool checks that a pool fits, and keeps the addresses that it does not have from
// being leased while it is written.
func (r *Registry) planPool(p Pool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.poolFits(p); err != nil {
		return err
	}
	if old := r.pools[p.Name]; old != nil {
		old.coming = &p
	}
	return nil
}

// addPool makes the pool visible. The lock is held.
func (r *Registry) addPool(p Pool) {
	if old := r.pools[p.Name]; old != nil {
		r.retire(old)
	}
	n := &pool{Pool: p}
	r.pools[p.Name] = n
	if p.Home == "" {
		r.allocate(n)
	}
}

// poolFits says whether a pool fits the others and the devices that it has. The lock is
// held.
func (r *Registry) poolFits(p Pool) error {
	old, known := r.pools[p.Name]
	if !known && len(r.pools) >= maxPools {
		return fmt.Errorf("pool %q: %w: at most %d pools", p.Name, ErrFull, maxPools)
	}
	var f service.Faults
	if known {
		f.Check(old.Home == p.Home, "home", p.Home, "%q, as it is: delete the pool first", old.Home)
	}
	if _, ok := r.classes[p.Class]; !ok && p.Class != "" {
		f.Add("class", p.Class, "one of the classes: %s", names(r.classes))
	}
	for _, o := range r.pools {
		if o.Name != p.Name {
			checkPoolsFit(&f, p, o.Pool)
		}
	}
	for id, rec := range r.devices {
		if rec.device.Pool != p.Name {
			continue
		}
		for _, ip := range rec.addresses() {
			f.Check(p.usable(ip), "prefix", p.Prefix, "a network in which device %q can have its address %v", id, ip)
			f.Check(ip != p.Gateway, "gateway", p.Gateway, "an address that no device has: this is that of %q", id)
			f.Check(ip != p.Server, "server", p.Server, "an address that no device has: this is that of %q", id)
		}
	}
	return refusal(f, ErrConflict, "pool", p.Name)
}

// poolsFit compares two pools of different names.
func checkPoolsFit(f *service.Faults, p, o Pool) {
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

// DeletePool removes a pool to which no device belongs.
func (r *Registry) DeletePool(ctx context.Context, name string) error {
	r.admin.Lock()
	defer r.admin.Unlock()
	if err := r.poolUnused(name); err != nil {
		return err
	}
	if err := r.delete(ctx, keyPool+name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pools[name]; p != nil {
		r.retire(p)
	}
	delete(r.pools, name)
	return nil
}

func (r *Registry) poolUnused(name string) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch p := r.pools[name]; {
	case p == nil:
		return fmt.Errorf("pool %q: %w", name, ErrUnknown)
	case p.Configured:
		return fmt.Errorf("pool %q: %w", name, ErrConfigured)
	}
	for id, rec := range r.devices {
		if rec.device.Pool == name {
			return fmt.Errorf("pool %q: %w: device %q belongs to it", name, ErrInUse, id)
		}
	}
	return nil
}

// Pool returns the pool of that name.
func (r *Registry) Pool(name string) (Pool, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if p := r.pools[name]; p != nil {
		return p.Pool, true
	}
	return Pool{}, false
}

// Pools returns all pools, sorted by name.
func (r *Registry) Pools() []Pool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Pool, 0, len(r.pools))
	for _, p := range r.pools {
		out = append(out, p.Pool)
	}
	slices.SortFunc(out, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// LearningPool returns the pool that takes unknown devices in, the first by name
// if there are several.
func (r *Registry) LearningPool() (Pool, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.learning()
}

// learning is LearningPool with the lock held.
func (r *Registry) learning() (Pool, bool) {
	var found *pool
	for _, p := range r.pools {
		if p.Learn && (found == nil || p.Name < found.Name) {
			found = p
		}
	}
	if found == nil {
		return Pool{}, false
	}
	return found.Pool, true
}

// Ours says whether the address lies in the network of one of our own pools.
func (r *Registry) Ours(ip netip.Addr) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.ours(ip) != nil
}

func (r *Registry) ours(ip netip.Addr) *pool {
	for _, p := range r.pools {
		if p.Home == "" && p.Prefix.Contains(ip) {
			return p
		}
	}
	return nil
}

// Usage is how much of a pool is in use.
type Usage struct {
	Pool string `json:"pool"`
	// Size is how many addresses the pool gives out, Held how many of them nobody
	// else may get now, Quarantined how many of those were declined.
	Size        int `json:"size"`
	Held        int `json:"held"`
	Quarantined int `json:"quarantined"`
}

// Usage returns the use of our own pools, sorted by name.
func (r *Registry) Usage() []Usage {
	now := r.now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []Usage
	for _, p := range r.pools {
		if p.Home != "" {
			continue
		}
		u := Usage{Pool: p.Name, Size: p.size()}
		for _, a := range p.heap {
			if now.Before(a.ends()) {
				u.Held++
			}
			if now.Before(a.quarantined) {
				u.Quarantined++
			}
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Usage) int { return cmp.Compare(a.Pool, b.Pool) })
	return out
}

// size is the number of addresses that the pool gives out.
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
