package route

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/network"
)

// campus returns a tree of one border, spines and leaves with extra links between neighbouring
// leaves.
func campus(spines, leaves int) *network.Topology {
	var ends []network.PortRef
	for s := range spines {
		ends = append(ends, ref(1, s+1), ref(2+s, 1))
		for l := range leaves {
			ends = append(ends, ref(2+s, 2+l), ref(2+spines+s*leaves+l, 1))
		}
	}
	n := 1 + spines + spines*leaves
	for l := 2 + spines; l < n; l++ {
		ends = append(ends, ref(l, 2), ref(l+1, 3))
	}
	return wires(n, ends...)
}

// BenchmarkMigration measures the whole work of the package for one migration: the new plan and
// its waves. The topology has been planned on before, as for all but the first migration after a
// change.
func BenchmarkMigration(b *testing.B) {
	for _, size := range [][2]int{{1, 4}, {7, 6}, {20, 24}} {
		top := campus(size[0], size[1])
		n := len(top.Switches)
		w := want(Place{At: ref(n, 9), MAC: mac3})
		old, err := NewPlan(top, w)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("switches=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				w.Places = []Place{{At: ref(n-1-i%2, 9), MAC: mac4}}
				now, err := NewPlan(top, w)
				if err != nil {
					b.Fatal(err)
				}
				if len(Waves(old, now)) == 0 {
					b.Fatal("nothing to write")
				}
			}
		})
	}
}
