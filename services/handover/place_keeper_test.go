package handover

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// The network knows where a device is as soon as it is there, and which interface it uses.
func TestDevicesAreKept(t *testing.T) {
	r := newRig(t, nil)
	if _, kept := r.PlaceOf(mac1, netip.Addr{}); kept {
		t.Error("kept before it has come")
	}
	ip := r.attach(edge3, mac1)
	for what, c := range map[string]struct {
		mac  openflow.MAC
		ip   netip.Addr
		kept bool
	}{
		"its interface":          {mac1, netip.Addr{}, true},
		"its other interface":    {mac2, netip.Addr{}, false},
		"its address":            {openflow.MAC{}, ip, true},
		"an address of nobody":   {openflow.MAC{}, ip.Next(), false},
		"an interface of nobody": {openflow.MAC{6, 1}, netip.Addr{}, false},
	} {
		pin, kept := r.PlaceOf(c.mac, c.ip)
		if kept != c.kept || kept && pin != (network.Pin{MAC: mac1, At: edge3}) {
			t.Errorf("%s: %+v, %v", what, pin, kept)
		}
	}
	if r.attach(edge4, mac2) != ip {
		t.Fatal("another address")
	}
	if pin, kept := r.PlaceOf(openflow.MAC{}, ip); !kept || pin != (network.Pin{MAC: mac2, At: edge4}) {
		t.Errorf("after it has moved: %+v, %v", pin, kept)
	}
	r.eventually("the network to be told", func() bool {
		h, _ := r.w.HostByIP(ip)
		return h.MAC == mac2 && h.At == edge4
	})
}

// All traffic of a device passes the border. Anchored returns what stays constant wherever the
// device goes, and what does not.
func TestDevicesAreAnchored(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac1)
	for _, c := range []network.Pin{{MAC: mac1, At: edge3}, {MAC: mac2, At: edge4}} {
		if r.attach(c.At, c.MAC) != ip {
			t.Fatal("another address")
		}
		a, anchored := r.Anchored(ip)
		if border, ok := a.Border(uplink.Switch); !anchored || a.MAC != mac1 || a.Place != c || !ok || border != uplink || len(a.Borders) != 1 {
			t.Errorf("at %v: %+v, %v", c.At, a, anchored)
		}
	}
	if a, anchored := r.Anchored(ip.Next()); anchored {
		t.Errorf("an address of nobody: %+v", a)
	}
}
