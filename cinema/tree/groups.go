package tree

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// PerGroup bounds the buckets of a group: 818 of ours fit into a message of OpenFlow
	// 1.3, and Open vSwitch makes some 740 rewritten copies before it leaves its fast path.
	PerGroup = 700
	// MaxGroups bounds the groups of a channel at one switch, so that each channel has
	// numbers of its own for them.
	MaxGroups = 4
	// Open vSwitch makes a packet's copies of a list of actions, and leaves out every group
	// that begins beyond 64 KiB of it, without a word. A copy takes so many bytes of it, and
	// more at the first for each gateway in a group, and in another queue.
	mostBytes, copyBytes, gatewayBytes, queueBytes = 60_000, 24, 64, 16
	// MaxCopies is how many viewers of one gateway a channel may have behind one switch.
	MaxCopies = (mostBytes - MaxGroups*gatewayBytes) / copyBytes
)

// Copy is what one viewer gets: a channel's packets with another destination.
type Copy struct {
	// Out is the port by which it leaves, as an output action names it.
	Out uint32
	// MAC and To are the new destination: the gateway, and the port that is the viewer's.
	MAC openflow.MAC
	To  netip.AddrPort
	// Queue is the one of the port in which it leaves; zero for none.
	Queue uint32
}

// bucket is the copy as a bucket of a group.
func (c Copy) bucket() openflow.Bucket {
	actions := []openflow.Action{
		openflow.SetField(openflow.EthDst(c.MAC)), openflow.SetField(openflow.IPDst(c.To.Addr())), openflow.SetField(openflow.UDPDst(c.To.Port())),
	}
	return openflow.NewBucket(append(queued(actions, 0, c.Queue), openflow.Output(c.Out))...)
}

func compareCopies(a, b Copy) int {
	return cmp.Or(a.To.Compare(b.To), slices.Compare(a.MAC[:], b.MAC[:]), cmp.Compare(a.Out, b.Out), cmp.Compare(a.Queue, b.Queue))
}

// Groups are the copies of one channel at one switch. A copy stays in its group, and one
// that is new goes into the first with room, so that a viewer's change is a change of one
// group. The zero value has none.
type Groups struct {
	groups [MaxGroups][]placed // each in the order of its copies
	lists  [MaxGroups][]openflow.Bucket
	at     map[Copy]int
}

// placed is a copy with its bucket.
type placed struct {
	Copy
	bucket openflow.Bucket
}

// Set makes the groups have these copies. It returns those for which there is no room.
func (g *Groups) Set(copies []Copy) (over []Copy) {
	copies = slices.Clone(copies)
	slices.SortFunc(copies, compareCopies)
	copies = slices.Compact(copies)
	wanted := make(map[Copy]bool, len(copies))
	for _, c := range copies {
		wanted[c] = true
	}
	for n := range g.groups {
		before := len(g.groups[n])
		g.groups[n] = slices.DeleteFunc(g.groups[n], func(p placed) bool { return !wanted[p.Copy] })
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
	first, room := 0, mostBytes-g.bytes()
	for _, c := range copies {
		if _, has := g.at[c]; has {
			continue
		}
		for first < MaxGroups && len(g.groups[first]) >= PerGroup {
			first++
		}
		if first == MaxGroups || g.cost(first, c) > room {
			over = append(over, c)
			continue
		}
		room -= g.cost(first, c)
		g.insert(first, c)
	}
	return over
}

// bytes is what the copies take of a switch's list of actions.
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

// cost is by how much one more copy in a group has the list grow, at most.
func (g *Groups) cost(n int, c Copy) int {
	i, _ := g.place(n, c)
	for _, beside := range []int{i - 1, i} {
		if beside >= 0 && beside < len(g.groups[n]) && g.groups[n][beside].MAC == c.MAC {
			return c.bytes()
		}
	}
	if i > 0 && i < len(g.groups[n]) && g.groups[n][i-1].MAC == g.groups[n][i].MAC {
		return c.bytes() + 2*gatewayBytes // it parts those of another gateway
	}
	return c.bytes() + gatewayBytes
}

// place is where a copy stands in a group.
func (g *Groups) place(n int, c Copy) (int, bool) {
	return slices.BinarySearchFunc(g.groups[n], c, func(p placed, c Copy) int { return compareCopies(p.Copy, c) })
}

func (g *Groups) insert(n int, c Copy) {
	i, _ := g.place(n, c)
	g.groups[n] = slices.Insert(g.groups[n], i, placed{c, c.bucket()})
	g.at[c], g.lists[n] = n, nil
}

// reversed reports whether a copy leaves by the port by which the channel comes in.
func (g *Groups) reversed() bool {
	for c := range g.at {
		if c.Out == openflow.PortInPort {
			return true
		}
	}
	return false
}

// Len is how many copies there are.
func (g *Groups) Len() int { return len(g.at) }

// Count is how many groups there are.
func (g *Groups) Count() (n int) {
	for _, x := range g.groups {
		if len(x) > 0 {
			n++
		}
	}
	return n
}

// buckets are those of a group; none if there is no such group. They are not to be changed.
func (g *Groups) buckets(n int) []openflow.Bucket {
	if g.lists[n] == nil {
		for _, p := range g.groups[n] {
			g.lists[n] = append(g.lists[n], p.bucket)
		}
	}
	return g.lists[n]
}

// Lists are the buckets of the groups, by the numbers of these. A list is another one when
// something in it has changed. They are not to be changed.
func (g *Groups) Lists() map[int][]openflow.Bucket {
	out := map[int][]openflow.Bucket{}
	for n := range g.groups {
		if list := g.buckets(n); len(list) > 0 {
			out[n] = list
		}
	}
	return out
}

// BucketTo is where the copy of a bucket goes.
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

// GroupNumber is the number of the n-th group of the channel with a number, from which a
// network.Owner makes a group's identifier.
func GroupNumber(channel uint16, n int) uint16 { return channel*MaxGroups + uint16(n) }

// CopyAt is the copy for a viewer of a gateway that stands at a port, of what comes in by
// another port of the same switch.
func CopyAt(at network.PortRef, in uint32, mac openflow.MAC, to netip.AddrPort) Copy {
	return Copy{Out: network.Hop{Switch: at.Switch, In: in, Out: at.Port}.Output(), MAC: mac, To: to}
}
