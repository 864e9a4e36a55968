package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/service"
)

// classesChanged makes classes that were declared those that there are.
func (r *Registry) classesChanged(_ context.Context, changes []service.Change[Class]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range changes {
		if delete(r.classes, x.Name); x.After != nil {
			r.classes[x.Name] = x.After.Value
		}
	}
}

// classInUse says which pool or device is of the class.
func (r *Registry) classInUse(name string) error {
	for _, x := range r.PoolItems.Items() {
		if x.Value.Class == name {
			return fmt.Errorf("pool %q takes devices into it: %w", x.Name, service.ErrInUse)
		}
	}
	return r.deviceThat(func(d Device) bool { return d.Class == name })
}

// deviceThat says which device keeps a class or a pool in use. Before the registry is loaded
// it has those alone that nobody declared.
func (r *Registry) deviceThat(uses func(Device) bool) error {
	for _, x := range r.DeviceItems.Items() {
		if uses(x.Value) {
			return fmt.Errorf("device %q belongs to it: %w", x.Name, service.ErrInUse)
		}
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for id, rec := range r.devices {
		if uses(rec.device) {
			return fmt.Errorf("device %q belongs to it: %w", id, service.ErrInUse)
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

// DefaultClass names the class of devices that name none, VisitorsSaving and
// VisitorsSeamless those of visitors. Unless such a class is declared, it has a policy, and
// nothing else set.
const (
	DefaultClass     = "default"
	VisitorsSaving   = "visitors-saving"
	VisitorsSeamless = "visitors-seamless"
)

var builtIn = map[string]Policy{DefaultClass: PolicySaving, VisitorsSaving: PolicySaving, VisitorsSeamless: PolicySeamless}

// defaultOverlap is the overlap of classes that set none.
const defaultOverlap = 200 * time.Millisecond

// ClassOf returns the device's class with every default filled in for it. Only of
// a device that was learned the trigger stays empty, if its class sets none.
func (r *Registry) ClassOf(d Device) Class {
	c, ok := r.Class(cmp.Or(d.Class, DefaultClass))
	if !ok {
		c.Name = cmp.Or(d.Class, DefaultClass)
	}
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
