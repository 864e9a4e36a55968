package topology

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// country returns a network of 10,000 switches and 40,000 directed links.
func country() *Topology {
	const nodes = 10_000
	r := rand.New(rand.NewPCG(1, 2))
	switches := make([]openflow.DatapathID, nodes)
	for i := range switches {
		switches[i] = openflow.DatapathID(i + 1)
	}
	var links []Link
	for i := range 2 * nodes {
		a, b := i%nodes, (i+1)%nodes
		if i >= nodes {
			b = r.IntN(nodes)
		}
		pair := both(ref(a+1, 10+i), ref(b+1, 100_000+i), time.Duration(1+r.IntN(10_000))*time.Microsecond, 1000*mbit, uint64(r.IntN(1000))*mbit)
		for k := range pair {
			pair[k].Jitter, pair[k].Loss = time.Duration(1+r.IntN(1000))*time.Microsecond, 0.01*r.Float64()
		}
		links = append(links, pair...)
	}
	return New(1, switches, links)
}

func BenchmarkFind10k(b *testing.B) {
	top := country()
	for name, request := range map[string]Request{
		"bandwidth":    {MinBandwidth: 300 * mbit},
		"delay":        {MaxDelay: 35 * time.Millisecond},
		"delay-jitter": {MaxDelay: 35 * time.Millisecond, Objective: ObjectiveJitter},
		"widest":       {Objective: ObjectiveWidest},
		"all":          {MinBandwidth: 100 * mbit, MaxDelay: 60 * time.Millisecond, MaxJitter: 6 * time.Millisecond, MaxLoss: 0.06},
	} {
		b.Run(name, func(b *testing.B) {
			i, found := 0, 0
			for b.Loop() {
				i++
				if _, err := top.Find(ref(1, 1), ref(1+i*7919%10_000, 1), request); err == nil {
					found++
				}
			}
			b.ReportMetric(float64(found)/float64(i), "found/op")
		})
	}
}
