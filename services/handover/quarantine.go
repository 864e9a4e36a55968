package handover

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

const (
	// quarantineInterval is how often declined addresses that are due are looked for.
	quarantineInterval = time.Second
	// quarantineRecheck is how long after a host has answered for a declined address it is probed
	// again.
	quarantineRecheck = 5 * time.Second
	// maxQuarantineProbes is the number of addresses that are probed at once. Each probe goes to
	// every edge port.
	maxQuarantineProbes = 8
)

// quarantine returns declined addresses to their devices once nobody else uses them.
type quarantine struct {
	*core
	checked map[netip.Addr]quarantineCheck
}

// quarantineCheck is the latest probe of a declined address: when it was made, and the host that has
// answered, or zero if that host has not been reported.
type quarantineCheck struct {
	at     time.Time
	holder openflow.MAC
}

// check probes the declined addresses that are due, and returns those that nobody answers for. The
// addresses that were not probed for longest take precedence, so that a device which declines all
// the time delays others only a little.
func (q *quarantine) check(ctx context.Context) {
	now := q.now()
	all := q.registry.Lessor.Quarantined()
	checked := make(map[netip.Addr]quarantineCheck, len(all))
	for _, a := range all {
		if c, ok := q.checked[a.IP]; ok {
			checked[a.IP] = c
		}
	}
	q.checked = checked
	due := slices.DeleteFunc(all, func(a registry.Quarantined) bool {
		c, ok := checked[a.IP]
		return a.Due.After(now) || ok && now.Sub(c.at) < quarantineRecheck
	})
	slices.SortStableFunc(due, func(a, b registry.Quarantined) int { return checked[a.IP].at.Compare(checked[b.IP].at) })
	due = due[:min(len(due), maxQuarantineProbes)]
	var mu sync.Mutex
	tasks.Each(due, maxQuarantineProbes, func(a registry.Quarantined) {
		mac, used := q.net.AddressInUse(ctx, a.IP)
		if ctx.Err() != nil {
			return
		}
		if d, known := q.registry.DeviceByMAC(mac); used && (!known || d.ID != a.Device) {
			mu.Lock()
			defer mu.Unlock()
			if checked[a.IP].holder != mac && !q.reportRefused("address.conflict", "an address is kept from its device because another host uses it",
				map[string]any{"ip": a.IP, "device": a.Device, "mac": mac}) {
				mac = openflow.MAC{} // so that the next check reports the host
			}
			checked[a.IP] = quarantineCheck{now, mac}
			return
		}
		if err := q.registry.Lessor.Return(ctx, a); err != nil {
			q.warnings.Warn(q.log, "a declined address cannot be given back yet", "ip", a.IP, "error", err)
			return
		}
		q.log.Info("a declined address is given back: nobody else uses it", "ip", a.IP, "device", a.Device)
		q.publish("address.returned", map[string]any{"ip": a.IP, "device": a.Device})
	})
}
