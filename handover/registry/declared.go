package registry

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/service"
)

// Declared are the collections of what operators declare.
type Declared struct {
	ClassItems  *service.Collection[Class]
	PoolItems   *service.Collection[Pool]
	DeviceItems *service.Collection[Device]
}

// Definitions are what the configuration declares, by name.
type Definitions struct {
	Classes map[string]Class
	Pools   map[string]Pool
	Devices map[string]Device
}

// Filled are the definitions, with the only pool there is as that of devices without one.
func (t Definitions) Filled() Definitions {
	one := newBook(nil)
	for name, p := range t.Pools {
		one.pools[name] = &pool{Pool: p}
	}
	devices := maps.Clone(t.Devices)
	for id, d := range devices {
		d.Pool = cmp.Or(d.Pool, one.onlyPool())
		devices[id] = d
	}
	t.Devices = devices
	return t
}

func (r *Registry) declare(o Options) Declared {
	return Declared{
		service.NewCollection(service.Options[Class]{
			Kind: service.Kind[Class]{
				Noun: "class", Nouns: "classes of devices", Prefix: keyClass, Event: "class", Most: maxClasses,
				Contradicts: func(name string, c Class, _ []service.Item[Class]) error {
					return refusal(c.faults(), ErrInvalid, "class", name)
				},
				InUse: r.classInUse,
			},
			Store: o.Store, Log: r.log, Publish: o.Publish, Changed: r.classesChanged,
		}),
		service.NewCollection(service.Options[Pool]{
			Kind: service.Kind[Pool]{
				Noun: "pool", Nouns: "pools of addresses", Prefix: keyPool, Event: "pool", Most: maxPools,
				Contradicts: func(_ string, p Pool, _ []service.Item[Pool]) error { return r.planPool(p.filled()) },
				Abandoned:   r.abandonPool, InUse: r.poolInUse,
			},
			Store: o.Store, Log: r.log, Publish: o.Publish, Changed: r.poolsChanged,
		}),
		service.NewCollection(service.Options[Device]{
			Kind: service.Kind[Device]{
				Noun: "device", Nouns: "devices", Prefix: keyDevice, Event: "device", Most: maxDevices,
				Tell:        func(d Device) any { d.Key = nil; return d },
				Contradicts: func(_ string, d Device, _ []service.Item[Device]) error { return r.planDevice(d) },
			},
			Store: o.Store, Log: r.log, Publish: o.Publish, Changed: r.devicesChanged,
		}),
	}
}

// Configure takes what is configured now in the place of what was. What is in use and stands
// there no longer is kept, as the API's; so devices come first, which use the others.
func (r *Registry) Configure(ctx context.Context, next Definitions) error {
	if err := r.DeviceItems.Configure(ctx, next.Devices); err != nil {
		return err
	}
	if err := r.PoolItems.Configure(ctx, next.Pools); err != nil {
		return err
	}
	return r.ClassItems.Configure(ctx, next.Classes)
}

// Fits is everything that is wrong with definitions of the configuration: in themselves,
// together, and beside what the API has declared and what devices have. A fault's field
// begins with where it stands: "pools.campus.prefix". It changes nothing.
func (r *Registry) Fits(next Definitions) service.Faults {
	t := trial{book: newBook(r.book.now), of: r.book}
	devices, _ := beside(next.Devices, r.DeviceItems)
	pools, otherPools := beside(next.Pools, r.PoolItems)
	classes, otherClasses := beside(next.Classes, r.ClassItems)
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	t.keep()
	// Of what is not configured any more that is kept which is in use.
	used := func(by func(Device) bool) bool {
		_, kept := t.find(by)
		return kept || slices.ContainsFunc(devices, func(d service.Item[Device]) bool { return by(d.Value) })
	}
	for _, x := range otherPools {
		if used(func(d Device) bool { return d.Pool == x.Name }) {
			pools = append(pools, x)
		}
	}
	for _, x := range otherClasses {
		if used(func(d Device) bool { return d.Class == x.Name }) ||
			slices.ContainsFunc(pools, func(p service.Item[Pool]) bool { return p.Value.Class == x.Name }) {
			classes = append(classes, x)
		}
	}
	for _, x := range classes {
		t.tell("classes", x.Name, x.Value.faults())
		t.classes[x.Name] = x.Value
	}
	for _, x := range pools {
		t.pool(x.Name, x.Value.filled())
	}
	for _, x := range devices {
		t.device(x.Name, x.Value)
	}
	for _, x := range pools {
		t.tell("pools", x.Name, t.poolHolds(x.Value.filled()))
	}
	return t.faults
}

// trial is a book that would be, beside the one that is.
type trial struct {
	*book
	of     *book
	faults service.Faults
}

func (t *trial) tell(section, name string, found service.Faults) {
	t.faults = append(t.faults, found.Below(name).Below(section)...)
}

// keep makes what devices have, and those that nobody declared, part of the trial.
func (t *trial) keep() {
	for id, rec := range t.of.devices {
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

func (t *trial) pool(name string, p Pool) {
	found := p.faults()
	if len(found) == 0 {
		found = t.poolFaults(p)
	}
	t.tell("pools", name, found)
	if len(found) == 0 {
		t.addPool(p)
	}
}

func (t *trial) device(name string, d Device) {
	found := d.faults()
	rec, displaced := t.affected(d)
	if len(found) == 0 {
		found = append(t.giveWay(d, displaced), t.deviceFaults(&d, displaced)...)
	}
	t.tell("devices", name, found)
	if len(found) > 0 {
		return
	}
	if was := t.of.devices[name]; was != nil {
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

// beside are what is configured and then what is the API's; others stood in the
// configuration and do no more.
func beside[T any](configured map[string]T, c *service.Collection[T]) (all, others []service.Item[T]) {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		all = append(all, service.Item[T]{Name: name, Value: configured[name], Configured: true})
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
