package handover

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
)

// TestIdleTimeIsNoAssociation requests an address at a port that came up a while ago.
func TestIdleTimeIsNoAssociation(t *testing.T) {
	ms := time.Millisecond
	for _, tt := range []struct {
		name      string
		up, heard time.Duration // before the request; heard 0: not
		least     time.Duration
		most      time.Duration
	}{
		{"at once", 300 * ms, 0, 300 * ms, 2000 * ms},
		{"after having been heard", 5000 * ms, 4980 * ms, 20 * ms, 20 * ms},
		{"a minute later", time.Minute, 0, 0, 0},
		{"a minute later, heard just before", time.Minute, 10 * ms, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil)
			now := time.Now()
			r.NetworkChanged(network.Event{Kind: network.PortUp, Port: edge3, At: now.Add(-tt.up)})
			if tt.heard > 0 {
				ask := packet.AppendARPRequest(nil, mac3, netip.IPv4Unspecified(), netip.MustParseAddr("10.8.0.1"), 0)
				var h packet.Headers
				if err := h.Parse(ask); err != nil {
					t.Fatal(err)
				}
				r.packets.packet(edge3, &h, ask, now.Add(-tt.heard))
			}
			r.attach(edge3, mac3)
			r.idle()
			var got Parts
			r.change(func() { got = r.placement.history.at(r.placement.history.next - 1).Parts })
			if ta := time.Duration(got.Ta); ta < tt.least || ta > tt.most {
				t.Errorf("T_a is %v, want %v to %v", ta, tt.least, tt.most)
			}
			if got.Tc != got.Ta+got.Td+got.Tf+got.Te {
				t.Errorf("T_c is %v and not the sum of %v, %v, %v, %v", got.Tc, got.Ta, got.Td, got.Tf, got.Te)
			}
		})
	}
}
