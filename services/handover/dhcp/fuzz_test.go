package dhcp_test

import (
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// deviceAnywhere returns "phone", which may attach at every port.
func deviceAnywhere() registry.Device {
	return registry.Device{ID: "phone", MACs: []openflow.MAC{mac(1), mac(2), mac(3)}, Class: "open"}
}

// FuzzHandle gives the server frames of every kind. The server either gives no answer, or one that
// can be parsed again, to a device that exists.
func FuzzHandle(f *testing.F) {
	b := newBench(f)
	for kind := dhcpv4.MessageTypeDiscover; kind <= dhcpv4.MessageTypeInform; kind++ {
		for _, m := range []*dhcpv4.DHCPv4{
			b.message(kind, mac(1)),
			b.message(kind, mac(1), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip(10).AsSlice()))),
			b.message(kind, mac(1), dhcpv4.WithClientIP(ip(10).AsSlice()), dhcpv4.WithGatewayIP(ip(77).AsSlice())),
			b.sign(b.message(kind, mac(4), dhcpv4.WithGeneric(dhcpv4.OptionOptionOverload, []byte{3})), mac(4)),
		} {
			f.Add(requestFrame(m, openflow.MAC(m.ClientHWAddr)))
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var h packet.Headers
		if h.Parse(frame) != nil {
			return
		}
		m, err := dhcp.Parse(frame, &h)
		if err != nil {
			return
		}
		b := newBench(t, func(p *registry.Pool) { p.Learn = true })
		b.must(b.putDevice(deviceAnywhere()))
		for _, at := range []network.PortRef{radioA, relay} {
			d := b.handle(m, h.EthSrc, at)
			if d.Verdict == "" {
				t.Fatalf("no verdict: %+v", d)
			}
			if d.Reply == nil {
				continue
			}
			out := d.Frame(openflow.MAC{2, 0xff})
			var back packet.Headers
			if err := back.Parse(out); err != nil || back.End != len(out) {
				t.Fatalf("unreadable answer: %v", err)
			}
			if r, err := dhcpv4.FromBytes(out[back.Payload:]); err != nil || r.TransactionID != m.TransactionID {
				t.Fatalf("unreadable answer: %v", err)
			}
			if _, ok := b.reg.Device(d.Device.ID); !ok {
				t.Fatalf("an answer for nobody: %+v", d)
			}
		}
	})
}

// FuzzVerify gives signatures of every form to a device that has a key.
func FuzzVerify(f *testing.F) {
	b := newBench(f)
	good := b.sign(b.message(dhcpv4.MessageTypeRequest, mac(4)), mac(4))
	f.Add(good.Options.Get(dhcp.OptionSignature))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, option []byte) {
		m, err := dhcpv4.New(dhcpv4.WithHwAddr(good.ClientHWAddr), dhcpv4.WithGeneric(dhcp.OptionSignature, option))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dhcp.Verify(key, m, mac(4), b.now); err == nil {
			t.Fatalf("accepted %x for another transaction", option)
		}
	})
}
