package tree

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// MaxBuckets bounds the buckets of a group. A message of OpenFlow 1.3 has room for 818 buckets
	// like these, and Open vSwitch makes some 740 rewritten copies before it leaves its fast path.
	MaxBuckets = 700
	// MaxGroups bounds the groups of a channel at one switch, so that each channel has group
	// numbers of its own.
	MaxGroups = 4
	// Open vSwitch executes all copies of a packet as one list of actions, and silently omits
	// each group that begins beyond 64 KiB of that list. A copy takes copyBytes of the list.
	// The first copy for each gateway in a group takes gatewayBytes more, and a copy in a queue
	// queueBytes more.
	maxActionBytes, copyBytes, gatewayBytes, queueBytes = 60_000, 24, 64, 16
	// MaxCopies is how many viewers of one gateway a channel can have behind one switch.
	MaxCopies = (maxActionBytes - MaxGroups*gatewayBytes) / copyBytes
)

// Copy is the copy of a channel's packets for one viewer, with another destination.
type Copy struct {
	// Out is the output port, as an output action names it.
	Out uint32
	// MAC and To are the new destination: the gateway, and the viewer's port there.
	MAC openflow.MAC
	To  netip.AddrPort
	// Queue is the queue of the output port; zero means none.
	Queue uint32
}

// bucket returns the bucket of a group that makes the copy.
func (c Copy) bucket() openflow.Bucket {
	actions := []openflow.Action{
		openflow.SetField(openflow.EthDst(c.MAC)), openflow.SetField(openflow.IPDst(c.To.Addr())), openflow.SetField(openflow.UDPDst(c.To.Port())),
	}
	return openflow.NewBucket(append(appendSetQueue(actions, 0, c.Queue), openflow.Output(c.Out))...)
}

func compareCopies(a, b Copy) int {
	return cmp.Or(a.To.Compare(b.To), slices.Compare(a.MAC[:], b.MAC[:]), cmp.Compare(a.Out, b.Out), cmp.Compare(a.Queue, b.Queue))
}

// Groups holds the copies of one channel at one switch. A copy stays in its group, and a new
// one goes into the first group with room, so that a viewer's change modifies one group only.
// The zero value has no copies.
type Groups struct {
	groups [MaxGroups][]entry // sorted by compareCopies
	lists  [MaxGroups][]openflow.Bucket
	at     map[Copy]int
}

// Clone returns Groups with the same copies that can be changed independently. A clone of nil has no
// copies.
func (g *Groups) Clone() *Groups {
	if g == nil {
		return &Groups{}
	}
	out := &Groups{lists: g.lists, at: g.at} // Set replaces the map, and changes no list
	for n := range g.groups {
		out.groups[n] = slices.Clone(g.groups[n])
	}
	return out
}

// entry is a copy with its bucket.
type entry struct {
	Copy
	bucket openflow.Bucket
}

// Set makes the groups hold the given copies and no others. It returns the copies for which there is
// no room.
func (g *Groups) Set(copies []Copy) (overflow []Copy) {
	copies = slices.Clone(copies)
	slices.SortFunc(copies, compareCopies)
	copies = slices.Compact(copies)
	wanted := make(map[Copy]bool, len(copies))
	for _, c := range copies {
		wanted[c] = true
	}
	for n := range g.groups {
		before := len(g.groups[n])
		g.groups[n] = slices.DeleteFunc(g.groups[n], func(p entry) bool { return !wanted[p.Copy] })
		if len(g.groups[n]) != before {
			g.lists[n] = nil
		}
	}
	at := make(map[Copy]int, len(copies))
	for c, n := range g.at {
		if wanted[c] {
			at[c] = n
		}
	}
	g.at = at
	first, room := 0, maxActionBytes-g.bytes()
	for _, c := range copies {
		if _, ok := g.at[c]; ok {
			continue
		}
		for first < MaxGroups && len(g.groups[first]) >= MaxBuckets {
			first++
		}
		if first == MaxGroups || g.cost(first, c) > room {
			overflow = append(overflow, c)
			continue
		}
		room -= g.cost(first, c)
		g.insert(first, c)
	}
	return overflow
}

// bytes returns how many bytes of a switch's list of actions the copies take.
func (g *Groups) bytes() (n int) {
	for _, group := range g.groups {
		for i, p := range group {
			n += p.bytes()
			if i == 0 || group[i-1].MAC != p.MAC {
				n += gatewayBytes
			}
		}
	}
	return n
}

func (c Copy) bytes() int {
	if c.Queue != 0 {
		return copyBytes + queueBytes
	}
	return copyBytes
}

// cost returns an upper bound of the bytes that copy c adds to the list of actions if it is inserted
// into group n.
func (g *Groups) cost(n int, c Copy) int {
	i, _ := g.index(n, c)
	for _, beside := range []int{i - 1, i} {
		if beside >= 0 && beside < len(g.groups[n]) && g.groups[n][beside].MAC == c.MAC {
			return c.bytes()
		}
	}
	if i > 0 && i < len(g.groups[n]) && g.groups[n][i-1].MAC == g.groups[n][i].MAC {
		return c.bytes() + 2*gatewayBytes // it separates two copies for another gateway
	}
	return c.bytes() + gatewayBytes
}

// index returns the position of a copy in a group, and whether it is there.
func (g *Groups) index(n int, c Copy) (int, bool) {
	return slices.BinarySearchFunc(g.groups[n], c, func(p entry, c Copy) int { return compareCopies(p.Copy, c) })
}

func (g *Groups) insert(n int, c Copy) {
	i, _ := g.index(n, c)
	g.groups[n] = slices.Insert(g.groups[n], i, entry{c, c.bucket()})
	g.at[c], g.lists[n] = n, nil
}

// reversed reports whether a copy leaves by the port by which the channel enters.
func (g *Groups) reversed() bool {
	for c := range g.at {
		if c.Out == openflow.PortInPort {
			return true
		}
	}
	return false
}

// Len returns the number of copies.
func (g *Groups) Len() int { return len(g.at) }

// Count returns the number of groups that have copies.
func (g *Groups) Count() (n int) {
	for _, x := range g.groups {
		if len(x) > 0 {
			n++
		}
	}
	return n
}

// buckets returns the buckets of a group, or nil. The caller must not change them.
func (g *Groups) buckets(n int) []openflow.Bucket {
	if g.lists[n] == nil {
		for _, p := range g.groups[n] {
			g.lists[n] = append(g.lists[n], p.bucket)
		}
	}
	return g.lists[n]
}

// Lists returns the buckets of the groups, by group. Each change of a group makes a new slice, so the
// caller can compare slices by identity. The caller must not change them.
func (g *Groups) Lists() map[int][]openflow.Bucket {
	out := map[int][]openflow.Bucket{}
	for n := range g.groups {
		if list := g.buckets(n); len(list) > 0 {
			out[n] = list
		}
	}
	return out
}

// BucketTo returns the destination of a bucket's copy.
func BucketTo(b openflow.Bucket) (to netip.AddrPort) {
	for _, a := range b.Actions {
		switch {
		case a.Type != openflow.ActionSetField:
		case a.OXM.Field == openflow.FieldIPv4Dst:
			to = netip.AddrPortFrom(a.OXM.Addr(), to.Port())
		case a.OXM.Field == openflow.FieldUDPDst:
			to = netip.AddrPortFrom(to.Addr(), uint16(a.OXM.Uint()))
		}
	}
	return to
}

// GroupNumber returns the number of a channel's n-th group, from which network.Owner.GroupID makes the
// group's identifier. channel is the channel's number.
func GroupNumber(channel uint16, n int) uint16 { return channel*MaxGroups + uint16(n) }

// CopyAt returns the copy for a viewer of the gateway that is attached to port at. mac and to are the
// copy's destination. in is the port by which the channel enters that switch, or zero if it enters by
// a link. If the copy leaves by port in, its output action names OFPP_IN_PORT.
func CopyAt(at network.PortRef, in uint32, mac openflow.MAC, to netip.AddrPort) Copy {
	return Copy{Out: network.Hop{Switch: at.Switch, In: in, Out: at.Port}.Output(), MAC: mac, To: to}
}
