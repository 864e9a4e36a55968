package hosts

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/openflow"
)

const shards = 64

// index finds hosts by MAC address and VLAN.
type index struct {
	ignoreVLAN bool
	shards     [shards]shard
}

type shard struct {
	sync.RWMutex
	hosts map[uint64]*entry
	_     [32]byte // keeps the locks of two shards out of one cache line
}

func key(mac openflow.MAC, vlan uint16) uint64 {
	return uint64(mac[0])<<56 | uint64(mac[1])<<48 | uint64(mac[2])<<40 | uint64(mac[3])<<32 |
		uint64(mac[4])<<24 | uint64(mac[5])<<16 | uint64(vlan)
}

func (x *index) find(mac openflow.MAC, vlan uint16) *entry {
	if x.ignoreVLAN {
		vlan = 0
	}
	return x.entry(key(mac, vlan))
}

func (x *index) entry(k uint64) *entry {
	s := x.shardOf(k)
	s.RLock()
	defer s.RUnlock()
	return s.hosts[k]
}

func (x *index) shardOf(k uint64) *shard {
	return &x.shards[k*0x9e3779b97f4a7c15>>58]
}

func (x *index) add(k uint64, e *entry) {
	s := x.shardOf(k)
	s.Lock()
	defer s.Unlock()
	s.hosts[k] = e
}

func (x *index) remove(k uint64) {
	s := x.shardOf(k)
	s.Lock()
	defer s.Unlock()
	delete(s.hosts, k)
}

// ipIndex finds hosts by address: at most one in each VLAN. Its slices are replaced and never
// modified.
type ipIndex struct {
	sync.RWMutex
	hosts map[netip.Addr][]*entry
}

func (x *ipIndex) find(addr netip.Addr) []*entry {
	x.RLock()
	defer x.RUnlock()
	return x.hosts[addr]
}

// holder returns the host that has the address in the VLAN, or nil.
func (x *ipIndex) holder(addr netip.Addr, vlan uint16) *entry {
	for _, e := range x.find(addr) {
		if e.vlan == vlan {
			return e
		}
	}
	return nil
}

func (x *ipIndex) add(addr netip.Addr, e *entry) {
	x.Lock()
	defer x.Unlock()
	x.hosts[addr] = append(slices.Clone(x.hosts[addr]), e)
}

func (x *ipIndex) remove(addr netip.Addr, e *entry) {
	x.Lock()
	defer x.Unlock()
	left := slices.DeleteFunc(slices.Clone(x.hosts[addr]), func(o *entry) bool { return o == e })
	if len(left) == 0 {
		delete(x.hosts, addr)
		return
	}
	x.hosts[addr] = left
}
