package handover

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
)

// TestRogueDHCP checks where DHCP may be answered from.
func TestRogueDHCP(t *testing.T) {
	peering := ref(5, 9)
	r := newRig(t, func(s *Settings) { s.Borders = append(s.Borders, Border{Name: "north", At: peering, Peer: "north"}) })
	answer := packet.AppendUDP(nil, packet.Frame{Dst: packet.Broadcast, Src: mac3}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(netip.MustParseAddr("10.66.0.1"), dhcpServerPort), Dst: netip.AddrPortFrom(netip.MustParseAddr("255.255.255.255"), dhcpClientPort),
		Payload: make([]byte, 300),
	})
	fragment := append([]byte(nil), answer...)
	fragment[14+6] |= 0x20 // more follow
	tagged := append(append(append([]byte(nil), answer[:12]...), 0x81, 0, 0, 7), answer[12:]...)
	for name, c := range map[string]struct {
		at      network.PortRef
		frame   []byte
		verdict network.Verdict
	}{
		"a device's port":                 {edge4, answer, network.Stop},
		"in pieces":                       {edge4, fragment, network.Stop},
		"with a priority tag":             {edge4, priorityTagged(answer), network.Stop},
		"in a VLAN that has no devices":   {edge4, tagged, network.Continue},
		"behind the uplink":               {uplink, answer, network.Continue},
		"behind a port of role uplink":    {otherUplink, answer, network.Continue},
		"behind a neighbour":              {peering, answer, network.Stop},
		"from another switch, on its way": {ref(2, 11), answer, network.Continue},
	} {
		t.Run(name, func(t *testing.T) {
			before := countedIn(t, r.metrics.rogue, "controller")
			if got := r.in(c.at, c.frame); got != c.verdict {
				t.Errorf("%v, want %v", got, c.verdict)
			}
			if n := countedIn(t, r.metrics.rogue, "controller") - before; (n == 1) != (c.verdict == network.Stop) {
				t.Errorf("%v counted", n)
			}
		})
	}
	r.eventually("the switch drops it", func() bool {
		rules := r.w.Program(keyRogue + edge4.String()).Rules
		return len(rules) == 1 && len(rules[0].Actions) == 0 && rules[0].Hard == silenceTime
	})
	r.Removed(network.Removed{Installed: network.InstalledRule{Name: keyRogue + edge4.String(), Packets: 40}})
	if n := countedIn(t, r.metrics.rogue, "switch"); n != 40 {
		t.Errorf("the switch has dropped %v", n)
	}
	if n := len(r.guards.rogues.errors()); n != 2 {
		t.Errorf("the status tells of %d ports, want 2", n)
	}
}
