package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// PutClass adds or replaces a class. One that stands in the configuration is
// replaced by such a one alone.
func (r *Registry) PutClass(ctx context.Context, c Class) error {
	if c.Policy == "" {
		c.Policy = PolicySaving
	}
	if err := refusal(c.faults(), ErrInvalid, "class", c.Name); err != nil {
		return err
	}
	c.Ports = slices.Clone(c.Ports)
	r.admin.Lock()
	defer r.admin.Unlock()
	r.mu.RLock()
	old, known := r.classes[c.Name]
	full := !known && len(r.classes) >= maxClasses
	r.mu.RUnlock()
	switch {
	case full:
		return fmt.Errorf("class %q: %w: at most %d classes", c.Name, ErrFull, maxClasses)
	case old.Configured && !c.Configured:
		return fmt.Errorf("class %q: %w", c.Name, ErrConfigured)
	}
	return r.storeClass(ctx, c)
}

// storeClass writes a class and makes it visible. r.admin is locked.
func (r *Registry) storeClass(ctx context.Context, c Class) error {
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
	switch c, ok := r.classes[name]; {
	case !ok:
		return fmt.Errorf("class %q: %w", name, ErrUnknown)
	case c.Configured:
		return fmt.Errorf("class %q: %w", name, ErrConfigured)
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
