package stats

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// BenchmarkThousandLinks annotates a thousand directed links of a topology, as each change of
// the network does, and computes their losses, as each reading of counters does.
func BenchmarkThousandLinks(b *testing.B) {
	const switches = 500
	table := New(Options{})
	var links []topology.Link
	for s := range switches {
		x := topology.PortRef{Switch: openflow.DatapathID(s + 1), Port: 1}
		y := topology.PortRef{Switch: openflow.DatapathID((s+1)%switches + 1), Port: 2}
		links = append(links, topology.Link{From: x, To: y}, topology.Link{From: y, To: x})
		for i := range 20 {
			for _, at := range []topology.PortRef{x, y} {
				n := uint64(1000 * i)
				table.Observe(sample(at, 5*float64(i), time.Millisecond, time.Minute+time.Duration(i)*5*time.Second, Counters{TxPackets: n, RxPackets: n, TxBytes: 500 * n, RxBytes: 500 * n}))
			}
		}
	}
	b.Run("annotate", func(b *testing.B) {
		for b.Loop() {
			table.Annotate(links, nil, func(topology.PortRef) uint64 { return 1e9 })
		}
	})
	b.Run("compare ends", func(b *testing.B) {
		for b.Loop() {
			table.CompareEnds(links)
		}
	})
}
