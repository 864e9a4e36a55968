package fake_test

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

// BenchmarkSend sends a packet through tables of entries for other packets.
func BenchmarkSend(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table := fake.NewFlowTable(nil)
			for i := range n {
				m := openflow.MustMatch(openflow.InPort(uint32(i)), openflow.EthDst(openflow.MAC{2}))
				if i%2 == 0 {
					m = tcp(uint16(i>>1), openflow.InPort(uint32(i)))
				}
				if _, e := table.Flow(openflow.NewFlowMod(openflow.FlowAdd, 0, uint16(i%100), m)); e != nil {
					b.Fatal(e)
				}
			}
			p := fake.NewPacket(openflow.EthDst(openflow.MAC{2}), openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(1))
			for b.Loop() {
				table.Send(uint32(n), p)
			}
		})
	}
}
