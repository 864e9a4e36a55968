package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

// Registry keeps classes, pools, devices and leases. Its methods may be called
// from many goroutines. What they return is not to be modified.
//
// Three locks, taken in this order: admin is held through a change of what is
// registered, record.write through a change of one device or its lease, both over
// the write to the store; mu guards the memory and is never held over a write. A
// change claims what it needs under mu, is written, and becomes visible under mu,
// so changes of different devices are written at the same time and nobody waits
// for the store to read.
type Registry struct {
	st  store.Store
	now func() time.Time

	admin sync.Mutex

	mu      sync.RWMutex
	classes map[string]Class
	pools   map[string]*pool
	devices map[string]*record
	macs    map[openflow.MAC]*record
	addrs   map[netip.Addr]*address
	// declined has the addresses in quarantine, with who declined them.
	declined map[netip.Addr]decline
	// pending has the MACs of the device that is being registered.
	pending []openflow.MAC
	count   struct{ learned, unleased, visitors int }
}

type pool struct {
	Pool
	allocator
}

// record is a device with what it has.
type record struct {
	// write is held by whoever changes the device or its lease.
	write sync.Mutex

	// The rest is guarded by Registry.mu.
	device Device
	// lease has no address if the device has none, or lost it to somebody else.
	lease Lease
	// offer is the address that was offered last; the claim to it may be over.
	offer netip.Addr
	// stored is unset while a device that was learned has never had a lease: it is
	// in memory only.
	stored bool
	gone   bool
	// idle is when the device last came to have no lease.
	idle time.Time
	// signed is the greatest Lease.Signed the device ever had.
	signed time.Time
}

// holds says whether the device has an address by a lease that nobody has ended.
func (rec *record) holds() bool { return rec.lease.IP.IsValid() && !rec.lease.Released }

// decline is an address in quarantine.
type decline struct {
	Device string    `json:"device"`
	Until  time.Time `json:"until"`
}

// New returns an empty registry; Load fills it from the store.
func New(st store.Store, clock func() time.Time) *Registry {
	return &Registry{
		st: st, now: clock,
		classes:  make(map[string]Class),
		pools:    make(map[string]*pool),
		devices:  make(map[string]*record),
		macs:     make(map[openflow.MAC]*record),
		addrs:    make(map[netip.Addr]*address),
		declined: make(map[netip.Addr]decline),
	}
}

// PutClass adds or replaces a class.
func (r *Registry) PutClass(ctx context.Context, c Class) error {
	if c.Policy == "" {
		c.Policy = PolicySaving
	}
	if err := c.faults().refusal(ErrInvalid, "class", c.Name); err != nil {
		return err
	}
	c.Ports = slices.Clone(c.Ports)
	r.admin.Lock()
	defer r.admin.Unlock()
	r.mu.RLock()
	_, known := r.classes[c.Name]
	full := !known && len(r.classes) >= maxClasses
	r.mu.RUnlock()
	if full {
		return fmt.Errorf("class %q: %w: at most %d classes", c.Name, ErrFull, maxClasses)
	}
	if err := r.put(ctx, keyClass+c.Name, c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.classes[c.Name] = c
	return nil
}

// DeleteClass removes a class that no device and no pool refers to.
func (r *Registry) DeleteClass(ctx context.Context, name string) error {
	r.admin.Lock()
	defer r.admin.Unlock()
	if err := r.classUnused(name); err != nil {
		return err
	}
	if err := r.delete(ctx, keyClass+name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.classes, name)
	return nil
}

func (r *Registry) classUnused(name string) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if _, ok := r.classes[name]; !ok {
		return fmt.Errorf("class %q: %w", name, ErrUnknown)
	}
	for _, p := range r.pools {
		if p.Class == name {
			return fmt.Errorf("class %q: %w: pool %q takes devices into it", name, ErrInUse, p.Name)
		}
	}
	for id, rec := range r.devices {
		if rec.device.Class == name {
			return fmt.Errorf("class %q: %w: device %q is of it", name, ErrInUse, id)
		}
	}
	return nil
}

// Class returns the class of that name.
func (r *Registry) Class(name string) (Class, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, ok := r.classes[name]
	return c, ok
}

// Classes returns all classes, sorted by name.
func (r *Registry) Classes() []Class {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.classes), func(a, b Class) int { return cmp.Compare(a.Name, b.Name) })
}

// DefaultClass names the class of devices that name none. Unless one of that name
// is registered it is saving, with nothing else set.
const DefaultClass = "default"

// defaultOverlap is the overlap of classes that set none.
const defaultOverlap = 200 * time.Millisecond

// ClassOf returns the device's class with every default filled in for it. Only of
// a device that was learned the trigger stays empty, if its class sets none.
func (r *Registry) ClassOf(d Device) Class {
	c, ok := r.Class(cmp.Or(d.Class, DefaultClass))
	if !ok {
		c = Class{Name: DefaultClass, Policy: PolicySaving}
	}
	if c.Overlap == 0 {
		c.Overlap = defaultOverlap
	}
	switch {
	case c.Trigger != "" || d.Learned:
	case len(d.Key) > 0:
		c.Trigger = TriggerSigned
	default:
		c.Trigger = TriggerPorts
	}
	return c
}
