package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/openflow"
)

// Learn returns the device to which the MAC belongs, or registers a new one with this MAC if a
// pool learns unknown devices. A new device is kept in memory only until it has a lease.
func (r *Registry) Learn(m openflow.MAC) (Device, error) {
	d := Device{ID: "mac-" + strings.ReplaceAll(m.String(), ":", ""), MACs: []openflow.MAC{m}, Learned: true}
	if err := refusal(d.faults(), ErrInvalid, "device", d.ID); err != nil {
		return Device{}, err
	}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	if rec := r.book.macs[m]; rec != nil {
		return rec.device, nil
	}
	p, ok := r.book.learningPool()
	switch {
	case !ok:
		return Device{}, fmt.Errorf("MAC %v: %w, and no pool takes unknown devices in", m, ErrUnknown)
	case slices.Contains(r.book.pending, m):
		return Device{}, fmt.Errorf("MAC %v: %w: it is being registered", m, ErrConflict)
	case r.book.devices[d.ID] != nil:
		return Device{}, fmt.Errorf("MAC %v: %w: device %q has its name but not the MAC", m, ErrConflict, d.ID)
	case r.book.count.learned >= maxLearned || r.book.count.unleased >= maxUnleased:
		return Device{}, fmt.Errorf("MAC %v: %w devices that nobody registered", m, ErrFull)
	}
	d.Pool, d.Class = p.Name, p.Class
	rec := &record{device: d, idleSince: r.book.now()}
	r.book.devices[d.ID], r.book.macs[m] = rec, rec
	r.book.tally(d, false, 1)
	return d, nil
}
