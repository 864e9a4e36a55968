package registry

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/service"
)

// classesChanged makes classes that were declared those that there are.
func (r *Registry) classesChanged(_ context.Context, changes []service.Change[Class]) {
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	for _, x := range changes {
		if delete(r.book.classes, x.Name); x.After != nil {
			r.book.classes[x.Name] = x.After.Value
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
	return r.inUse(func(d Device) bool { return d.Class == name })
}

// inUse says which device keeps a class or a pool in use. Before the registry is loaded the
// book has those alone that nobody declared.
func (r *Registry) inUse(by func(Device) bool) error {
	for _, x := range r.DeviceItems.Items() {
		if by(x.Value) {
			return fmt.Errorf("device %q belongs to it: %w", x.Name, service.ErrInUse)
		}
	}
	r.book.mu.RLock()
	defer r.book.mu.RUnlock()
	if id, used := r.book.find(by); used {
		return fmt.Errorf("device %q belongs to it: %w", id, service.ErrInUse)
	}
	return nil
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
