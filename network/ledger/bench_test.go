package ledger_test

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// BenchmarkRulesComeAndGo measures the time to declare and withdraw a rule beside many others of
// its switch. The time for each rule must not grow with their number.
func BenchmarkRulesComeAndGo(b *testing.B) {
	const full = 10000
	for _, count := range []int{full / 16, full / 4, full} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			var all rule.Program
			for i := range count {
				all.Rules = append(all.Rules, rule.Rule{
					Switch: 1, Stage: rule.StageRoute, Match: openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(uint16(i))),
					Actions: []openflow.Action{openflow.Output(1)},
				})
			}
			for range b.N {
				l := ledger.New(1)
				owner, err := l.AddOwner("bench", false)
				if err != nil {
					b.Fatal(err)
				}
				for _, p := range []rule.Program{all, {}} {
					c, err := l.Plan(owner, "key", p)
					if err != nil {
						b.Fatal(err)
					}
					c.Confirm()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/rule")
		})
	}
}
