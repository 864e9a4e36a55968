package network

import (
	"testing"

	"github.com/sluice-net/sluice/network/packet"
)

func TestPacketKinds(t *testing.T) {
	for want, layers := range map[string]packet.Layers{
		"lldp":  packet.Ethernet | packet.LLDP,
		"arp":   packet.Ethernet | packet.VLAN | packet.ARP,
		"nd":    packet.Ethernet | packet.IPv6 | packet.ICMPv6 | packet.ND,
		"tcp":   packet.Ethernet | packet.IPv4 | packet.TCP,
		"udp":   packet.Ethernet | packet.IPv6 | packet.UDP,
		"other": packet.Ethernet | packet.IPv4 | packet.ICMPv4,
	} {
		if got := kindOf(&packet.Headers{Layers: layers}).String(); got != want {
			t.Errorf("%v is %s, want %s", layers, got, want)
		}
	}
}
