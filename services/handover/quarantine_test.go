package handover

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// TestDeclinedAddressesComeBack checks that a device which has declined the address of its declaration,
// because another host uses it, gets it back when that host is gone, and that both are told.
func TestDeclinedAddressesComeBack(t *testing.T) {
	fixed := netip.MustParseAddr("10.8.30.7")
	var ahead atomic.Int64
	w := newWorld(treeLinks)
	r := start(t, w, newStore(t), func(s *Settings) {
		alter(s.Devices, "car", func(d *registry.Device) { d.IP = fixed })
	}, func(s *Service) {
		s.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	if ip := r.attach(edge3, mac1); ip != fixed {
		t.Fatalf("attached with %v", ip)
	}
	sub := r.bus.Subscribe(0)
	other := openflow.MAC{2, 0xee, 0, 0, 0, 1}
	m, err := dhcpv4.New(dhcpv4.WithHwAddr(mac1[:]), dhcpv4.WithMessageType(dhcpv4.MessageTypeDecline), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(fixed.AsSlice())))
	if err != nil {
		t.Fatal(err)
	}
	r.send(edge3, mac1, m)
	quarantined := func() int { return len(r.registry.Lessor.Quarantined()) }
	r.eventually("the address to be in quarantine", func() bool { return quarantined() == 1 })
	told := func(kind string) func() bool {
		var all []string
		return func() bool {
			all = append(all, happened(t, r.bus, sub)...)
			return slices.Contains(all, kind)
		}
	}
	r.eventually("the device to be without an address", told("handover.device.detached"))
	w.SetHost(network.Host{MAC: other, IPs: []netip.Addr{fixed}, At: edge4})
	ahead.Store(int64(15 * time.Second))
	r.eventually("the conflict to be told", told("handover.address.conflict"))
	if quarantined() != 1 {
		t.Error("the address was given back while another host has it")
	}
	w.RemoveHost(fixed)
	ahead.Store(int64(30 * time.Second))
	r.eventually("the return to be told", told("handover.address.returned"))
	if ip := r.attach(edge3, mac1); ip != fixed {
		t.Errorf("attached with %v, want its own", ip)
	}
}
