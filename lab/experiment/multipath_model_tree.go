package experiment

import (
	"math/rand/v2"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// modelTree is the model's fat tree of k ports. Its links have numbers, each direction one of its
// own. First are those from the racks' switches to the aggregation switches, then those back, those
// from there to the core, those back, and last those of the hosts, up and down.
type modelTree struct{ k, half int }

func newModelTree(k int) modelTree { return modelTree{k, k / 2} }

func (t modelTree) hosts() int { return t.k * t.half * t.half }

// tier returns the number of links from one tier of switches to the next, in one direction.
func (t modelTree) tier() int { return t.k * t.half * t.half }

func (t modelTree) links() int { return 4*t.tier() + 2*t.hosts() }

// rack returns the number of a host's rack. Racks of a pod have successive numbers.
func (t modelTree) rack(host int) int { return host / t.half }

func (t modelTree) up(rack, a int) int       { return rack*t.half + a }
func (t modelTree) down(rack, a int) int     { return t.tier() + t.up(rack, a) }
func (t modelTree) toCore(pod, a, c int) int { return 2*t.tier() + (pod*t.half+a)*t.half + c }
func (t modelTree) fromCore(pod, a, c int) int {
	return t.tier() + t.toCore(pod, a, c)
}
func (t modelTree) send(host int) int    { return 4*t.tier() + 2*host }
func (t modelTree) receive(host int) int { return t.send(host) + 1 }

// hashed returns one of the shortest paths between two hosts at random, as if every switch chose
// the next link by a hash that spreads flows evenly.
func (t modelTree) hashed(rng *rand.Rand, from, to int) []int {
	here, there := t.rack(from), t.rack(to)
	a, c := rng.IntN(t.half), rng.IntN(t.half)
	switch pod, other := here/t.half, there/t.half; {
	case here == there:
		return []int{t.send(from), t.receive(to)}
	case pod == other:
		return []int{t.send(from), t.up(here, a), t.down(there, a), t.receive(to)}
	default:
		return []int{t.send(from), t.up(here, a), t.toCore(pod, a, c), t.fromCore(other, a, c), t.down(there, a), t.receive(to)}
	}
}

// edge, and the functions below it, number the switches of the tree as a controller sees them:
// those of the racks first, then those of aggregation, then the core. Ports are numbered from 1,
// those of hosts after the others.
func (t modelTree) edge(rack int) openflow.DatapathID { return openflow.DatapathID(1 + rack) }

func (t modelTree) aggregation(pod, a int) openflow.DatapathID {
	return openflow.DatapathID(1 + t.k*t.half + pod*t.half + a)
}

func (t modelTree) core(a, c int) openflow.DatapathID {
	return openflow.DatapathID(1 + 2*t.k*t.half + a*t.half + c)
}

// at returns the port of a host.
func (t modelTree) at(host int) topology.PortRef {
	return topology.PortRef{Switch: t.edge(t.rack(host)), Port: uint32(1 + t.half + host%t.half)}
}

// topology returns the tree as a controller knows it, and the numbers of links by the ports from
// which they lead.
func (t modelTree) topology(capacity uint64) (*topology.Topology, map[reserve.Link]int) {
	numbers := make(map[reserve.Link]int, 4*t.tier())
	var switches []openflow.DatapathID
	var links []topology.Link
	join := func(low, high topology.PortRef, up, down int) {
		links = append(links, topology.Link{From: low, To: high, Capacity: capacity}, topology.Link{From: high, To: low, Capacity: capacity})
		numbers[low], numbers[high] = up, down
	}
	for pod := range t.k {
		for i := range t.half {
			rack := pod*t.half + i
			switches = append(switches, t.edge(rack), t.aggregation(pod, i))
			for j := range t.half {
				join(topology.PortRef{Switch: t.edge(rack), Port: uint32(1 + j)}, topology.PortRef{Switch: t.aggregation(pod, j), Port: uint32(1 + i)},
					t.up(rack, j), t.down(rack, j))
				join(topology.PortRef{Switch: t.aggregation(pod, i), Port: uint32(1 + t.half + j)}, topology.PortRef{Switch: t.core(i, j), Port: uint32(1 + pod)},
					t.toCore(pod, i, j), t.fromCore(pod, i, j))
			}
		}
	}
	for i := range t.half * t.half {
		switches = append(switches, t.core(i/t.half, i%t.half))
	}
	return topology.New(1, switches, links), numbers
}
