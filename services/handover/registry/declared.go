package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
)

// Declared holds the collections of what operators declare.
type Declared struct {
	ClassItems  *kit.Collection[Class]
	PoolItems   *kit.Collection[Pool]
	DeviceItems *kit.Collection[Device]
}

// Definitions holds what the configuration declares, by name.
type Definitions struct {
	Classes map[string]Class
	Pools   map[string]Pool
	Devices map[string]Device
}

// WithDefaults returns the definitions with the pool filled in for devices that name none, if
// exactly one pool is declared.
func (d Definitions) WithDefaults() Definitions {
	one := newBook(nil)
	for name, p := range d.Pools {
		one.pools[name] = &pool{Pool: p}
	}
	devices := maps.Clone(d.Devices)
	for id, d := range devices {
		d.Pool = cmp.Or(d.Pool, one.onlyPool())
		devices[id] = d
	}
	d.Devices = devices
	return d
}

// declare creates the collections of what operators declare.
func (r *Registry) declare(o Options) Declared {
	return Declared{
		kit.NewCollection(kit.Options[Class]{
			Kind: kit.Kind[Class]{
				Singular: "class", Plural: "classes of devices", Prefix: keyClass, Event: "class", MaxItems: maxClasses,
				Conflicts: func(name string, c Class, _ []kit.Item[Class]) error {
					return refusal(c.faults(), ErrInvalid, "class", name)
				},
				InUse: r.classInUse,
			},
			Store: o.Store, Log: r.log, Publish: o.Publish, Changed: r.classesChanged,
		}),
		kit.NewCollection(kit.Options[Pool]{
			Kind: kit.Kind[Pool]{
				Singular: "pool", Plural: "pools of addresses", Prefix: keyPool, Event: "pool", MaxItems: maxPools,
				Conflicts: func(_ string, p Pool, _ []kit.Item[Pool]) error { return r.planPool(p.withDefaults()) },
				Abandoned: r.abandonPool, InUse: r.poolInUse,
			},
			Store: o.Store, Log: r.log, Publish: o.Publish, Changed: r.poolsChanged,
		}),
		kit.NewCollection(kit.Options[Device]{
			Kind: kit.Kind[Device]{
				Singular: "device", Plural: "devices", Prefix: keyDevice, Event: "device", MaxItems: maxDevices,
				EventPayload: func(d Device) any { d.Key = nil; return d },
				Conflicts:    func(_ string, d Device, _ []kit.Item[Device]) error { return r.planDevice(d) },
			},
			Store: o.Store, Log: r.log, Publish: o.Publish, Changed: r.devicesChanged,
		}),
	}
}

// Configure replaces the configured definitions by next. A definition that is no longer configured
// but still in use is kept as one of the API. Devices are configured first, because they use pools
// and classes.
func (r *Registry) Configure(ctx context.Context, next Definitions) error {
	if err := r.DeviceItems.Configure(ctx, next.Devices); err != nil {
		return err
	}
	if err := r.PoolItems.Configure(ctx, next.Pools); err != nil {
		return err
	}
	return r.ClassItems.Configure(ctx, next.Classes)
}

// Fits returns all faults of definitions of the configuration: faults of single definitions, conflicts
// between them, and conflicts with what the API has declared and with leases. A fault's field begins
// with its place in the file: "pools.campus.prefix". Fits changes nothing.
func (r *Registry) Fits(next Definitions) kit.Faults {
	t := trial{book: newBook(r.book.now), current: r.book}
	devices, _ := merge(next.Devices, r.DeviceItems)
	pools, otherPools := merge(next.Pools, r.PoolItems)
	classes, otherClasses := merge(next.Classes, r.ClassItems)
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	t.keep()
	// What is no longer configured is kept if it is in use.
	used := func(by func(Device) bool) bool {
		_, kept := t.find(by)
		return kept || slices.ContainsFunc(devices, func(d kit.Item[Device]) bool { return by(d.Value) })
	}
	for _, x := range otherPools {
		if used(func(d Device) bool { return d.Pool == x.Name }) {
			pools = append(pools, x)
		}
	}
	for _, x := range otherClasses {
		if used(func(d Device) bool { return d.Class == x.Name }) ||
			slices.ContainsFunc(pools, func(p kit.Item[Pool]) bool { return p.Value.Class == x.Name }) {
			classes = append(classes, x)
		}
	}
	for _, x := range classes {
		t.add("classes", x.Name, x.Value.faults())
		t.classes[x.Name] = x.Value
	}
	for _, x := range pools {
		t.pool(x.Name, x.Value.withDefaults())
	}
	for _, x := range devices {
		t.device(x.Name, x.Value)
	}
	for _, x := range pools {
		t.add("pools", x.Name, t.poolHolds(x.Value.withDefaults()))
	}
	return t.faults
}

// trial is a book with the definitions that are being checked. It collects their faults. current is
// the registry's own book.
type trial struct {
	*book
	current *book
	faults  kit.Faults
}

// add adds the faults of one definition.
func (t *trial) add(section, name string, found kit.Faults) {
	t.faults = append(t.faults, found.WithPrefix(name).WithPrefix(section)...)
}

// keep claims in the trial the addresses that devices hold now, and copies the devices that nobody
// declared to it.
func (t *trial) keep() {
	for id, rec := range t.current.devices {
		guest := rec.device.guest()
		for _, ip := range rec.addresses() {
			if guest || ip != rec.device.IP {
				t.claim(ip, id, forever)
			}
		}
		if guest {
			t.addDevice(&record{lease: rec.lease}, rec.device)
		}
	}
}

// pool adds a pool to the trial, or its faults.
func (t *trial) pool(name string, p Pool) {
	found := p.faults()
	if len(found) == 0 {
		found = t.poolFaults(p)
	}
	t.add("pools", name, found)
	if len(found) == 0 {
		t.addPool(p)
	}
}

// device adds a device to the trial, or its faults.
func (t *trial) device(name string, d Device) {
	found := d.faults()
	rec, displaced := t.affected(d)
	if len(found) == 0 {
		found = append(t.giveWay(d, displaced), t.deviceFaults(&d, displaced)...)
	}
	t.add("devices", name, found)
	if len(found) > 0 {
		return
	}
	if was := t.current.devices[name]; was != nil {
		rec.lease, rec.reserved = was.lease, was.reserved
	}
	for _, o := range displaced {
		t.forget(o)
	}
	if d.IP.IsValid() {
		t.claim(d.IP, d.ID, forever)
	}
	t.addDevice(rec, d)
}

// merge returns the configured definitions followed by those of the API. others are the
// definitions that were configured before and no longer are.
func merge[T any](configured map[string]T, c *kit.Collection[T]) (all, others []kit.Item[T]) {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		all = append(all, kit.Item[T]{Name: name, Value: configured[name], Configured: true})
	}
	for _, x := range c.Items() {
		switch _, replaced := configured[x.Name]; {
		case replaced:
		case x.Configured:
			others = append(others, x)
		default:
			all = append(all, x)
		}
	}
	return all, others
}

// classesChanged applies changes of declared classes.
func (r *Registry) classesChanged(_ context.Context, changes []kit.Change[Class]) {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	for _, x := range changes {
		if delete(r.book.classes, x.Name); x.After != nil {
			r.book.classes[x.Name] = x.After.Value
		}
	}
}

// classInUse returns an error that names a pool or device that uses the class, or nil.
func (r *Registry) classInUse(name string) error {
	for _, x := range r.PoolItems.Items() {
		if x.Value.Class == name {
			return fmt.Errorf("pool %q takes devices into it: %w", x.Name, kit.ErrInUse)
		}
	}
	return r.inUse(func(d Device) bool { return d.Class == name })
}

// inUse returns an error that names a device that uses a class or pool, or nil. It looks at the
// declared devices as well as at the book, because before the registry is loaded the book holds
// only devices that nobody declared.
func (r *Registry) inUse(by func(Device) bool) error {
	for _, x := range r.DeviceItems.Items() {
		if by(x.Value) {
			return fmt.Errorf("device %q belongs to it: %w", x.Name, kit.ErrInUse)
		}
	}
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	if id, used := r.book.find(by); used {
		return fmt.Errorf("device %q belongs to it: %w", id, kit.ErrInUse)
	}
	return nil
}

// DefaultClass is the name of the class of devices that name none. VisitorsSaving and VisitorsSeamless
// are the names of the classes of visitors. Unless such a class is declared, only its policy is set.
const (
	DefaultClass     = "default"
	VisitorsSaving   = "visitors-saving"
	VisitorsSeamless = "visitors-seamless"
)

// builtIn holds the policies that these three classes have while they are not declared.
var builtIn = map[string]Policy{DefaultClass: PolicySaving, VisitorsSaving: PolicySaving, VisitorsSeamless: PolicySeamless}

// defaultOverlap is the overlap of classes that set none.
const defaultOverlap = 200 * time.Millisecond

// ClassOf returns the device's class with every default filled in. The one exception: the trigger stays
// empty for a learned device whose class sets none.
func (r *Registry) ClassOf(d Device) Class {
	r.book.mu.RLock()
	c := r.book.classes[cmp.Or(d.Class, DefaultClass)]
	r.book.mu.RUnlock()
	c.Name = cmp.Or(d.Class, DefaultClass)
	c.Policy = cmp.Or(c.Policy, builtIn[c.Name], PolicySaving)
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
