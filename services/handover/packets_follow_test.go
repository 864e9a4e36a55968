package handover

import (
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// sees passes a packet with a device's address to the service, as a spoof rule sends it up, and
// waits until it has been handled.
func (r *rig) sees(at network.PortRef, src openflow.MAC, ip netip.Addr) {
	r.t.Helper()
	data := packet.AppendUDP(nil, packet.Frame{Dst: routerMAC, Src: src}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(ip, 5000), Dst: netip.AddrPortFrom(server, 5000), Payload: []byte("a packet"),
	})
	var h packet.Headers
	if err := h.Parse(data); err != nil {
		r.t.Fatal(err)
	}
	r.packets.followPacket(at, &h, time.Now())
	r.idle()
}

// A client that does not watch its link sends no request when its cable is moved; its packets
// cause the move.
func TestPacketsAreFollowed(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	r.idle()
	r.w.SetDown(edge3, true)
	r.sees(edge4, mac1, ip)
	r.at(ip, mac1, edge4, mac1)
	if l, _ := r.registry.Lease("car"); l.IP != ip || l.Attachment == nil || l.Attachment.At != edge4 {
		t.Errorf("lease %+v", l)
	}
	if rec := r.api.records(handoversInput{Device: "car", Kind: "move"}); len(rec) != 1 || rec[0].Cause != "a packet of the device" {
		t.Errorf("records %+v", rec)
	}
	if got := r.answer(edge4, dhcpv4.MessageTypeAck, 0); got.IsValid() {
		t.Error("it was answered, and has not asked")
	}
}

// A packet causes no move where a request would not, or where the device may still be at its
// place.
func TestPacketsThatAreNotFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Settings)
		up   bool // whether the port of the device's place has a link
		at   network.PortRef
		src  openflow.MAC
	}{
		"its place has a link":      {up: true, at: edge4, src: mac1},
		"another of its interfaces": {at: edge4, src: mac2},
		"a stranger":                {at: edge4, src: mac("02:00:00:00:00:99")},
		"a border port":             {at: uplink, src: mac1},
		"it signs its requests": {at: edge4, src: mac1, edit: func(x *Settings) {
			alter(x.Devices, "car", func(d *registry.Device) { d.Key = make([]byte, 32) })
		}},
		"it may not be at the port": {at: edge4, src: mac1, edit: func(x *Settings) {
			alter(x.Classes, "desk", func(c *registry.Class) { c.Ports = []network.PortRef{edge3} })
			alter(x.Devices, "car", func(d *registry.Device) { d.Class = "desk" })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.edit)
			ip := r.attach(edge3, mac1)
			r.idle()
			r.w.SetDown(edge3, !c.up)
			r.sees(c.at, c.src, ip)
			if l, _ := r.registry.Lease("car"); l.Attachment == nil || l.Attachment.At != edge3 {
				t.Errorf("it was followed: %+v", l.Attachment)
			}
		})
	}
}
