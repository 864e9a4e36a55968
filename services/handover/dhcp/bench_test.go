package dhcp_test

import (
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
)

// BenchmarkHandle measures one message from frame to frame, with the registry on
// a store in memory.
func BenchmarkHandle(bb *testing.B) {
	b := newBench(bb)
	b.must(b.putDevice(deviceAnywhere()))
	a := b.attach(mac(1), mac(1), radioA).Lease.IP
	for name, m := range map[string]*dhcpv4.DHCPv4{
		"discover": b.message(dhcpv4.MessageTypeDiscover, mac(1)),
		"renew":    b.renewing(mac(1), a),
		"refuse":   b.renewing(mac(1), ip(99)),
	} {
		frame := requestFrame(m, mac(1))
		bb.Run(name, func(bb *testing.B) {
			bb.ReportAllocs()
			for bb.Loop() {
				b.fromFrame(bb, frame, radioA)
			}
		})
	}
	bb.Run("migrate", func(bb *testing.B) {
		frame := requestFrame(b.rebooting(mac(1), a), mac(1))
		bb.ReportAllocs()
		places := [2]network.PortRef{radioA, radioB}
		for i := 0; bb.Loop(); i++ {
			b.fromFrame(bb, frame, places[i%2])
		}
	})
}

func (b *bench) fromFrame(bb *testing.B, frame []byte, at network.PortRef) {
	var h packet.Headers
	if err := h.Parse(frame); err != nil {
		bb.Fatal(err)
	}
	m, err := dhcp.Parse(frame, &h)
	if err != nil {
		bb.Fatal(err)
	}
	d := b.handle(m, h.EthSrc, at)
	if len(d.Frame(openflow.MAC{2, 0xff})) == 0 {
		bb.Fatal("no answer")
	}
}

// BenchmarkVerify measures the check of one signature.
func BenchmarkVerify(bb *testing.B) {
	b := newBench(bb)
	m := b.sign(b.message(dhcpv4.MessageTypeRequest, mac(4)), mac(4))
	bb.ReportAllocs()
	for bb.Loop() {
		if _, err := dhcp.Verify(key, m, mac(4), b.now); err != nil {
			bb.Fatal(err)
		}
	}
}
