package registry

import (
	"container/heap"
	"net/netip"
	"time"
)

const (
	// offerHold is how long an address that was offered waits for the request.
	offerHold = 30 * time.Second
	// reuseAfter is how long an address rests after its lease has ended before
	// somebody else may get it: time to take its rules out of the switches.
	reuseAfter = 10 * time.Second
	// quarantine is how long an address that a client declined is given to nobody.
	quarantine = 10 * time.Minute
)

// forever is later than any clock.
var forever = time.Unix(1<<40, 0)

// address is what is known of an address that somebody has, had or was offered.
type address struct {
	ip netip.Addr
	// device has a claim to the address; until its end nobody else gets it. The
	// claim of a lease does not end by itself but when Expire or Release says so.
	device string
	until  time.Time
	// quarantined ends the time in which nobody at all gets it.
	quarantined time.Time
	// pool gives the address out, unless it is nil; index is the place in its heap.
	pool  *pool
	index int
}

// ends is when anybody may have the address.
func (a *address) ends() time.Time {
	if a.quarantined.After(a.until) {
		return a.quarantined
	}
	return a.until
}

// free says whether the device may have the address now.
func (a *address) free(device string, now time.Time) bool {
	return a == nil || !now.Before(a.quarantined) && (a.device == device || !now.Before(a.until))
}

// allocator finds an address of a pool that is free for anybody. Addresses that
// nobody had yet go first, then that which has been free for longest, so that a
// device which comes back mostly finds its own.
type allocator struct {
	next netip.Addr // below it, all are in the heap
	heap addressHeap
}

// find returns a free address, or none. It takes constant time, spread over the
// pool's life.
func (p *pool) find(addrs map[netip.Addr]*address, now time.Time) (netip.Addr, bool) {
	for ; p.next.IsValid() && !p.Last.Less(p.next); p.next = p.next.Next() {
		if addrs[p.next] == nil && p.gives(p.next) {
			return p.next, true
		}
	}
	if len(p.heap) > 0 && !now.Before(p.heap[0].ends()) {
		return p.heap[0].ip, true
	}
	return netip.Addr{}, false
}

// addressHeap has the address on top that is free first.
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

// address returns the record of ip, making one if there is none.
func (b *book) address(ip netip.Addr) *address {
	a := b.addrs[ip]
	if a == nil {
		a = &address{ip: ip, pool: b.giver(ip)}
		b.addrs[ip] = a
		if a.pool != nil {
			heap.Push(&a.pool.heap, a)
		}
	}
	return a
}

// claim gives the device the address until then. Whoever had a claim before loses what was
// remembered of it.
func (b *book) claim(ip netip.Addr, device string, until time.Time) {
	a := b.address(ip)
	if old := b.devices[a.device]; old != nil && a.device != device && old.lease.IP == ip {
		old.lease = Lease{}
	}
	a.device, a.until = device, until
	reorder(a)
}

// rest ends the device's claim to the address, if it has one.
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

// reorder restores the heap after the address's end has changed. The lock is held.
func reorder(a *address) {
	if a.pool != nil {
		heap.Fix(&a.pool.heap, a.index)
	}
}

// giver is the pool that gives the address out, if one does.
func (b *book) giver(ip netip.Addr) *pool {
	for _, p := range b.pools {
		if p.gives(ip) {
			return p
		}
	}
	return nil
}

// allocate starts the pool's allocator anew.
func (b *book) allocate(p *pool) {
	b.retire(p)
	p.allocator = allocator{next: p.First}
	for _, a := range b.addrs {
		if p.gives(a.ip) {
			a.pool = p
			heap.Push(&p.heap, a)
		}
	}
}

// retire takes all addresses out of the pool's hands.
func (b *book) retire(p *pool) {
	for _, a := range p.heap {
		a.pool = nil
	}
	p.heap = nil
}
