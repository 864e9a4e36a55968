package hosts

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Options say how a table learns. The zero value of each field but Edge means
// its default.
type Options struct {
	// Edge tells whether hosts may be learned behind a port. It has to be set;
	// it is asked only when a host is new or somewhere else than it was.
	Edge func(topology.PortRef) bool
	// IgnoreVLAN makes a MAC address one host whatever VLAN it is seen in.
	IgnoreVLAN bool
	// Subnets are those whose IPv4 and IPv6 addresses are learned from any packet.
	Subnets []netip.Prefix
	// Pinned are hosts whose place never changes, by address: what is said of them elsewhere
	// is not believed.
	Pinned map[netip.Addr]Pin
	// Confirm is how long a host may take to answer where it was when another place, or
	// another host, is said to have its addresses: only then that is believed. Zero
	// believes at once. Reachable tells whether a host can be asked behind a port; nil
	// means always.
	Confirm   time.Duration
	Reachable func(topology.PortRef) bool
	// Grace is for how long claims about hosts of a switch that has left, or come, wait until
	// the hosts can be asked. For a switch of before the start they wait three times as long.
	// Below zero they do not wait.
	Grace time.Duration
	// Notes has changes noted for who keeps hosts over a restart: see Table.Notes.
	Notes bool
	// Keeper tells where somebody keeps a host that is looked for by its MAC address or,
	// if that is zero, by its IP address: then only that is believed. It must not wait.
	Keeper func(openflow.MAC, netip.Addr) (Pin, bool)
	// Most bounds the hosts behind a port where that is not MaxPerPort; it returns zero
	// for others.
	Most func(topology.PortRef) int
	// MaxHosts bounds the table, MaxPerSwitch and MaxPerPort the hosts at one switch and
	// behind one port, so that none can fill the table, and MaxIPs the addresses of one
	// host. Where there is no place, a host gives way that has been seen but once.
	MaxHosts, MaxPerSwitch, MaxPerPort, MaxIPs int
	// Age is how long a host is kept that is not seen. Traffic that rules carry
	// is not seen here, so it is long.
	Age time.Duration
	// MoveHold is how long after a move a host is not moved again: late frames
	// from the old place do not send it back.
	MoveHold time.Duration
}

// The defaults of Options.
const (
	DefaultMaxHosts = 65536
	// DefaultMaxPerSwitch is a quarter of the table.
	DefaultMaxPerSwitch = DefaultMaxHosts / 4
	DefaultMaxPerPort   = 4096
	DefaultMaxIPs       = 32
	DefaultAge          = time.Hour
	DefaultMoveHold     = 200 * time.Millisecond
	// DefaultGrace is longer than Open vSwitch takes to be started again, and to settle the
	// ports of a switch that has connected. Three times that is longer than the 8 s that it
	// waits at most between two attempts to reach a controller that was away.
	DefaultGrace = 5 * time.Second
)

// Kind says how a host changed.
type Kind uint8

// The kinds of change.
const (
	Added Kind = iota + 1
	Moved
	Removed
	// Changed: the host has gained or lost an address.
	Changed
	// Refused: what was said of a host behind From is not believed, for Why.
	Refused
	// Doubted: a host, which is known, is to be asked whether it is still where it was,
	// because of what was said of it behind From, or will be as soon as it can be.
	Doubted
	// Believed: what was said of a host is not in doubt any more.
	Believed
)

// Change is what became of a host. From is where a moved host stood before, and Lost the
// address that another host has now, which stands behind From.
type Change struct {
	Kind Kind
	Host topology.Host
	From topology.PortRef
	Lost netip.Addr
	Why  Why
	// Doubt is the claim that was refused or believed, or is in doubt; New says that the
	// host is to be asked now.
	Doubt *Doubt
	New   bool
}

// Table is the host table. All methods may be called concurrently.
type Table struct {
	opts    Options
	refused refusals
	known   index
	ips     ipIndex
	pins    atomic.Pointer[pins]

	mu     sync.Mutex // held while anything but seen changes
	places places
	doubts doubts
	memory memory
}

// entry is one host. What readers see of it is immutable behind one pointer.
type entry struct {
	mac   openflow.MAC
	vlan  uint16
	seen  atomic.Int64 // Unix nanoseconds
	added int64        // or when the table was made, if it was known before
	again atomic.Bool  // it was seen again some time after it was added
	state atomic.Pointer[state]

	// The table's mutex guards these: what is in doubt about the host, and until when
	// nothing is, since it has answered.
	doubt *Doubt
	rests time.Time
	// restless is how often the host is said to be elsewhere; nil if never.
	restless *restless
}

type state struct {
	at     topology.PortRef
	moved  int64 // when the host came to this place, Unix nanoseconds
	ips    []netip.Addr
	router RouterState
}

func (e *entry) host() topology.Host {
	s := e.state.Load()
	return topology.Host{MAC: e.mac, VLAN: e.vlan, IPs: slices.Clone(s.ips), At: s.at, Seen: time.Unix(0, e.seen.Load())}
}

// update replaces the state by a changed copy. The mutex is held.
func (t *Table) update(e *entry, change func(*state)) {
	s := *e.state.Load()
	s.ips = slices.Clone(s.ips)
	change(&s)
	e.state.Store(&s)
	t.memory.note(e)
}

// New makes an empty table.
func New(o Options) *Table {
	o.MaxHosts = cmp.Or(o.MaxHosts, DefaultMaxHosts)
	o.MaxPerSwitch = cmp.Or(o.MaxPerSwitch, DefaultMaxPerSwitch)
	o.MaxPerPort = cmp.Or(o.MaxPerPort, DefaultMaxPerPort)
	o.MaxIPs = cmp.Or(o.MaxIPs, DefaultMaxIPs)
	o.Age = cmp.Or(o.Age, DefaultAge)
	o.MoveHold = cmp.Or(o.MoveHold, DefaultMoveHold)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	if o.Keeper == nil {
		o.Keeper = func(openflow.MAC, netip.Addr) (Pin, bool) { return Pin{}, false }
	}
	t := &Table{opts: o}
	t.pins.Store(newPins(o.Pinned, nil))
	t.known.ignoreVLAN = o.IgnoreVLAN
	for i := range t.known.shards {
		t.known.shards[i].hosts = map[uint64]*entry{}
	}
	t.ips.hosts = map[netip.Addr][]*entry{}
	t.places = places{opts: &t.opts, switches: map[openflow.DatapathID]*place{}}
	t.doubts = doubts{
		opts: &t.opts, places: &t.places, refused: &t.refused,
		ports: map[topology.PortRef]int{}, switches: map[openflow.DatapathID]int{},
	}
	t.memory = memory{wanted: o.Notes, changed: map[uint64]change{}, kept: map[uint64]struct{}{}}
	return t
}

// Lookup says where a host stands.
func (t *Table) Lookup(mac openflow.MAC, vlan uint16) (topology.PortRef, bool) {
	e := t.known.find(mac, vlan)
	if e == nil {
		return topology.PortRef{}, false
	}
	return e.state.Load().at, true
}

// ByMAC returns the host with this address in this VLAN.
func (t *Table) ByMAC(mac openflow.MAC, vlan uint16) (topology.Host, bool) {
	e := t.known.find(mac, vlan)
	if e == nil {
		return topology.Host{}, false
	}
	return e.host(), true
}

// ByIP returns the host that has claimed the address. Where hosts in several
// VLANs have, it is the one seen last.
func (t *Table) ByIP(addr netip.Addr) (topology.Host, bool) {
	var last *entry
	for _, e := range t.ips.find(addr.Unmap()) {
		if last == nil || e.seen.Load() > last.seen.Load() {
			last = e
		}
	}
	if last == nil {
		return topology.Host{}, false
	}
	return last.host(), true
}

// All returns every host, ordered by address and VLAN.
func (t *Table) All() []topology.Host {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]topology.Host, 0, t.places.count)
	for e := range t.places.all() {
		out = append(out, e.host())
	}
	slices.SortFunc(out, func(a, b topology.Host) int {
		return cmp.Compare(key(a.MAC, a.VLAN), key(b.MAC, b.VLAN))
	})
	return out
}

// Ports lists the ports of a switch behind which hosts stand, ascending.
func (t *Table) Ports(d openflow.DatapathID) []uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.places.switches[d]; p != nil {
		return slices.Sorted(maps.Keys(p.ports))
	}
	return nil
}

// Len is the number of hosts.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.places.count
}

// RouterState says whether a host is an IPv6 router.
type RouterState uint8

// The states. A host's neighbour advertisements tell; before one is seen, a
// controller must not answer for the host: an advertisement with the wrong
// router flag makes its receivers drop their default route.
const (
	RouterUnknown RouterState = iota
	NotRouter
	IsRouter
)

// Neighbor is what an ARP or neighbour solicitation asks for.
type Neighbor struct {
	MAC    openflow.MAC
	At     topology.PortRef
	Router RouterState
	Seen   time.Time
}

// Neighbor returns the host that has claimed the address in this VLAN. A virtual address is a
// neighbour in every VLAN, at no port.
func (t *Table) Neighbor(addr netip.Addr, vlan uint16) (Neighbor, bool) {
	if mac, virtual := t.pins.Load().virtual[addr]; virtual {
		return Neighbor{MAC: mac, Router: NotRouter, Seen: time.Now()}, true
	}
	for _, e := range t.ips.find(addr) {
		if e.vlan == vlan || t.opts.IgnoreVLAN {
			s := e.state.Load()
			return Neighbor{MAC: e.mac, At: s.at, Router: s.router, Seen: time.Unix(0, e.seen.Load())}, true
		}
	}
	return Neighbor{}, false
}
