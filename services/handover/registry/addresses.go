package registry

import (
	"container/heap"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
)

const (
	// offerHold is how long an offered address is reserved for the request.
	offerHold = 30 * time.Second
	// reuseAfter is how long an address is reserved after its lease has ended, so that its rules
	// can be removed from the switches before another device gets it.
	reuseAfter = 10 * time.Second
	// quarantine is how long no device gets an address that a client has declined. Return ends the
	// quarantine earlier, once nobody uses the address any more.
	quarantine = 10 * time.Minute
)

// forever is later than any time of a clock.
var forever = time.Unix(1<<40, 0)

// address is the state of an address that a device has, had or was offered.
type address struct {
	ip netip.Addr
	// device has a claim to the address; nobody else gets it before until. The claim of a lease
	// ends only when Expire or Release ends it.
	device string
	until  time.Time
	// quarantined is the time before which no device gets the address. From returnable on, Return may
	// end the quarantine if nobody uses the address. rest is the time from the decline to returnable.
	quarantined, returnable time.Time
	rest                    time.Duration
	// pool is the pool that gives the address out, or nil; index is the address's place in the
	// pool's heap.
	pool  *pool
	index int
}

// ends returns when any device may have the address.
func (a *address) ends() time.Time {
	if a.quarantined.After(a.until) {
		return a.quarantined
	}
	return a.until
}

// free reports whether the device may have the address now.
func (a *address) free(device string, now time.Time) bool {
	return a == nil || !now.Before(a.quarantined) && (a.device == device || !now.Before(a.until))
}

// allocator finds a free address of a pool. Addresses that no device has had yet come first, then
// the one that has been free for longest, so that a device which comes back mostly gets its own
// again.
type allocator struct {
	next netip.Addr // all addresses below it are in the heap
	heap addressHeap
}

// find returns a free address, and reports whether there is one. It takes amortised constant time.
func (p *pool) find(addrs map[netip.Addr]*address, now time.Time) (netip.Addr, bool) {
	for ; p.allocator.next.IsValid() && !p.Last.Less(p.allocator.next); p.allocator.next = p.allocator.next.Next() {
		if addrs[p.allocator.next] == nil && p.gives(p.allocator.next) {
			return p.allocator.next, true
		}
	}
	if len(p.allocator.heap) > 0 && !now.Before(p.allocator.heap[0].ends()) {
		return p.allocator.heap[0].ip, true
	}
	return netip.Addr{}, false
}

// addressHeap is a heap. The address that becomes free first is on top.
type addressHeap []*address

func (h addressHeap) Len() int           { return len(h) }
func (h addressHeap) Less(i, j int) bool { return h[i].ends().Before(h[j].ends()) }

func (h addressHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *addressHeap) Push(x any) {
	a := x.(*address)
	a.index = len(*h)
	*h = append(*h, a)
}

// Pop implements heap.Interface.
func (h *addressHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return a
}

// address returns the state of ip, and creates it if there is none.
func (b *book) address(ip netip.Addr) *address {
	a := b.addrs[ip]
	if a == nil {
		a = &address{ip: ip, pool: b.givenBy(ip)}
		b.addrs[ip] = a
		if a.pool != nil {
			heap.Push(&a.pool.allocator.heap, a)
		}
	}
	return a
}

// claim gives the device the address until the given time. Another device that had the claim before
// loses its remembered lease of the address.
func (b *book) claim(ip netip.Addr, device string, until time.Time) {
	a := b.address(ip)
	if old := b.devices[a.device]; old != nil && a.device != device && old.lease.IP == ip {
		old.lease = Lease{}
	}
	a.device, a.until = device, until
	reorder(a)
}

// rest ends the device's claim to the address, if it has one: the claim lasts for reuseAfter from now on.
// An address to which the device is bound stays claimed for ever.
func (b *book) rest(ip netip.Addr, device string, now time.Time) {
	a := b.addrs[ip]
	if a == nil || a.device != device {
		return
	}
	a.until = now.Add(reuseAfter)
	if rec := b.devices[device]; rec != nil && rec.device.IP == ip {
		a.until = forever
	}
	reorder(a)
}

// reorder restores the heap after the address's end has changed. The caller holds the lock.
func reorder(a *address) {
	if a.pool != nil {
		heap.Fix(&a.pool.allocator.heap, a.index)
	}
}

// givenBy returns the pool that gives the address out, or nil.
func (b *book) givenBy(ip netip.Addr) *pool {
	for _, p := range b.pools {
		if p.gives(ip) {
			return p
		}
	}
	return nil
}

// resetAllocator rebuilds the pool's allocator from the known addresses.
func (b *book) resetAllocator(p *pool) {
	b.clearAllocator(p)
	p.allocator = allocator{next: p.First}
	for _, a := range b.addrs {
		if p.gives(a.ip) {
			a.pool = p
			heap.Push(&p.allocator.heap, a)
		}
	}
}

// clearAllocator removes all addresses from the pool's allocator.
func (b *book) clearAllocator(p *pool) {
	for _, a := range p.allocator.heap {
		a.pool = nil
	}
	p.allocator.heap = nil
}

// admit returns an error if a device must not take another address at a port. Learned devices at one
// port may hold no more than half of the pool's addresses by offers and leases, so that a host that
// invents devices leaves the rest to others. A device that has an address keeps it. The caller holds
// the lock until the device has its address: otherwise several devices that ask at the same time could
// exceed the bound. at is zero for a device that has not asked at a port.
func (b *book) admit(rec *record, p *pool, at network.PortRef, now time.Time) error {
	if !rec.device.Learned || at.IsZero() {
		return nil
	}
	share, have := max(p.size()/2, 1), 0
	for _, a := range p.allocator.heap {
		o := b.devices[a.device]
		if o == nil || !o.device.Learned || !now.Before(a.ends()) {
			continue
		}
		if o == rec {
			rec.asked = at
			return nil
		}
		if o.place() == at {
			have++
		}
	}
	if have >= share {
		return fmt.Errorf("device %q at %v: pool %q: %w for more unregistered devices there: they have %d of %d", rec.device.ID, at, p.Name, ErrExhausted, have, p.size())
	}
	rec.asked = at
	return nil
}

// place returns where the device is, or where it last asked.
func (rec *record) place() network.PortRef {
	if rec.holds() && rec.lease.Attachment != nil {
		return rec.lease.Attachment.At
	}
	return rec.asked
}
