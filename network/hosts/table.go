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

// Options control how a table learns. A zero field means its default, except for Edge.
type Options struct {
	// Edge reports whether hosts may be learned behind a port. It must be set. It is called only
	// for a host that is new or at another port than before.
	Edge func(topology.PortRef) bool
	// IgnoreVLAN makes a MAC address one host in all VLANs.
	IgnoreVLAN bool
	// Subnets are those whose IPv4 and IPv6 addresses are learned from any packet.
	Subnets []netip.Prefix
	// Pinned holds hosts whose port never changes, by address. Packets that show them elsewhere
	// are ignored.
	Pinned map[netip.Addr]Pin
	// Confirm is how long a host may take to answer at its old place after a claim that it has
	// moved or that another host has its address. The claim is accepted after that time; zero
	// accepts it at once. Reachable reports whether a host can be asked behind a port; nil means
	// always.
	Confirm   time.Duration
	Reachable func(topology.PortRef) bool
	// Grace is how long claims about hosts of a switch that has disconnected or connected wait
	// until the hosts can be asked. For a switch that was known before the controller's start it
	// is three times as long. If it is negative, claims do not wait.
	Grace time.Duration
	// TrackChanges enables the recording of changes for Table.UnsavedChanges.
	TrackChanges bool
	// ManagedAt returns the place of a host that a service manages, by its MAC address or, if
	// that is zero, by its IP address. Packets that show such a host elsewhere are ignored.
	// ManagedAt must not block.
	ManagedAt func(openflow.MAC, netip.Addr) (Pin, bool)
	// PortLimit returns the limit of hosts behind a port where it is not MaxPerPort, and zero
	// for other ports.
	PortLimit func(topology.PortRef) int
	// MaxHosts limits the hosts in the table, MaxPerSwitch those at one switch and MaxPerPort
	// those behind one port, so that nobody can fill the table, and MaxIPs limits the addresses
	// of one host. If a limit of hosts is reached, a host that was seen only once is evicted. A host
	// with MaxIPs addresses loses its oldest one when it gets another.
	MaxHosts, MaxPerSwitch, MaxPerPort, MaxIPs int
	// Age is how long a host is kept after it was last seen. It is long because the controller
	// does not see the traffic that rules forward.
	Age time.Duration
	// MoveHold is how long after a move a host is not moved again, so that late frames from the
	// old place do not move it back.
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
	// DefaultGrace is longer than Open vSwitch takes to restart, and than the ports of a newly
	// connected switch take to settle. Three times DefaultGrace is longer than 8 s, the longest time
	// between two attempts of Open vSwitch to reach a controller.
	DefaultGrace = 5 * time.Second
)

// Kind is the kind of a change.
type Kind uint8

// The kinds of change.
const (
	Added Kind = iota + 1
	Moved
	Removed
	// Changed means that the host has gained or lost an address.
	Changed
	// ClaimRefused means that a claim made behind the port From is refused, for the given Reason.
	ClaimRefused
	// ClaimPending means that a claim made behind From is pending: the known host is to be asked
	// whether it is still at its old place, now or as soon as it can be asked.
	ClaimPending
	// ClaimAccepted means that the claim made by the host behind From is accepted.
	ClaimAccepted
)

// Change is a change of a host. From is the former port of a moved host. Lost is an address that
// the host has lost to another host, which is behind From.
type Change struct {
	Kind   Kind
	Host   topology.Host
	From   topology.PortRef
	Lost   netip.Addr
	Reason Reason
	// Claim is the pending, refused or accepted claim. New reports whether the host is to be
	// asked now.
	Claim *Claim
	New   bool
}

// Table is the host table. It is safe for concurrent use.
type Table struct {
	opts    Options
	refused refusals
	known   index
	ips     ipIndex
	pins    atomic.Pointer[pins]

	mu      sync.Mutex // held while anything except entry.seen changes
	places  places
	claims  pendingClaims
	unsaved changeLog
}

// entry is one host. Its state, which is read without the table's mutex, is immutable and is
// replaced as a whole.
type entry struct {
	mac       openflow.MAC
	vlan      uint16
	seen      atomic.Int64 // Unix nanoseconds
	added     int64        // Unix nanoseconds; for a restored host the time of Restore
	seenAgain atomic.Bool  // whether the host was seen seenAgainAfter or longer after it was added
	state     atomic.Pointer[state]

	// contested lists the addresses to which claims are pending; nil if there never were any.
	contested atomic.Pointer[[]netip.Addr]

	// The table's mutex guards these: the pending claims about the host, and the times until which
	// claims are refused because it has answered, both by address. The invalid address stands for
	// the claim that the host has moved.
	claims     map[netip.Addr]*Claim
	quietUntil map[netip.Addr]time.Time
	// flapping counts how often the host has moved or was claimed to have moved; nil if never.
	flapping *flapCounter
}

type state struct {
	at     topology.PortRef
	moved  int64 // when the host came to this port, Unix nanoseconds
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
	t.unsaved.record(e)
}

// New returns an empty table.
func New(o Options) *Table {
	o.MaxHosts = cmp.Or(o.MaxHosts, DefaultMaxHosts)
	o.MaxPerSwitch = cmp.Or(o.MaxPerSwitch, DefaultMaxPerSwitch)
	o.MaxPerPort = cmp.Or(o.MaxPerPort, DefaultMaxPerPort)
	o.MaxIPs = cmp.Or(o.MaxIPs, DefaultMaxIPs)
	o.Age = cmp.Or(o.Age, DefaultAge)
	o.MoveHold = cmp.Or(o.MoveHold, DefaultMoveHold)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	if o.ManagedAt == nil {
		o.ManagedAt = func(openflow.MAC, netip.Addr) (Pin, bool) { return Pin{}, false }
	}
	t := &Table{opts: o}
	t.pins.Store(newPins(o.Pinned, nil))
	t.known.ignoreVLAN = o.IgnoreVLAN
	for i := range t.known.shards {
		t.known.shards[i].hosts = map[uint64]*entry{}
	}
	t.ips.hosts = map[netip.Addr][]*entry{}
	t.places = places{opts: &t.opts, switches: map[openflow.DatapathID]*switchHosts{}}
	t.claims = pendingClaims{
		opts: &t.opts, places: &t.places, refused: &t.refused,
		ports: map[topology.PortRef]int{}, switches: map[openflow.DatapathID]int{},
	}
	t.unsaved = changeLog{enabled: o.TrackChanges, changed: map[uint64]revision{}, saved: map[uint64]struct{}{}}
	return t
}

// Lookup returns the port at which a host is, and whether the host is known.
func (t *Table) Lookup(mac openflow.MAC, vlan uint16) (topology.PortRef, bool) {
	e := t.known.find(mac, vlan)
	if e == nil {
		return topology.PortRef{}, false
	}
	return e.state.Load().at, true
}

// ByMAC returns the host with this MAC address in this VLAN.
func (t *Table) ByMAC(mac openflow.MAC, vlan uint16) (topology.Host, bool) {
	e := t.known.find(mac, vlan)
	if e == nil {
		return topology.Host{}, false
	}
	return e.host(), true
}

// ByIP returns the host that uses the address. If hosts in several VLANs use it, ByIP returns
// the host seen last.
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

// Ports returns the ports of a switch with hosts behind them, ascending.
func (t *Table) Ports(d openflow.DatapathID) []uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.places.switches[d]; p != nil {
		return slices.Sorted(maps.Keys(p.ports))
	}
	return nil
}

// Len returns the number of hosts.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.places.count
}

// RouterState tells whether a host is an IPv6 router.
type RouterState uint8

// The router states, which a host's advertisements reveal. Before an advertisement is seen, the
// controller must not answer for the host: an advertisement with the wrong router flag makes its
// receivers drop their default route.
const (
	RouterUnknown RouterState = iota
	NotRouter
	IsRouter
)

// Neighbor holds the data for the answer to an ARP request or neighbour solicitation.
type Neighbor struct {
	MAC    openflow.MAC
	At     topology.PortRef
	Router RouterState
	Seen   time.Time
}

// Neighbor returns the host that uses the address in this VLAN, unless a claim of another host to
// the address is pending: an answer might name the wrong host. A virtual address is a neighbour in
// every VLAN, at no port.
func (t *Table) Neighbor(addr netip.Addr, vlan uint16) (Neighbor, bool) {
	if mac, virtual := t.pins.Load().virtual[addr]; virtual {
		return Neighbor{MAC: mac, Router: NotRouter, Seen: time.Now()}, true
	}
	for _, e := range t.ips.find(addr) {
		if e.vlan == vlan || t.opts.IgnoreVLAN {
			if e.isContested(addr) {
				return Neighbor{}, false
			}
			s := e.state.Load()
			return Neighbor{MAC: e.mac, At: s.at, Router: s.router, Seen: time.Unix(0, e.seen.Load())}, true
		}
	}
	return Neighbor{}, false
}
