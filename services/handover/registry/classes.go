package registry

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/kit"
)

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

// DefaultClass names the class of devices that name none; VisitorsSaving and VisitorsSeamless name
// those of visitors. Unless such a class is declared, it has a policy and nothing else set.
const (
	DefaultClass     = "default"
	VisitorsSaving   = "visitors-saving"
	VisitorsSeamless = "visitors-seamless"
)

// builtIn holds the policies of these classes while they are not declared.
var builtIn = map[string]Policy{DefaultClass: PolicySaving, VisitorsSaving: PolicySaving, VisitorsSeamless: PolicySeamless}

// defaultOverlap is the overlap of classes that set none.
const defaultOverlap = 200 * time.Millisecond

// ClassOf returns the device's class with every default filled in. Only for a learned device the
// trigger stays empty, if its class sets none.
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
