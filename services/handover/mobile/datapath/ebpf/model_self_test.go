package ebpf

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

var (
	ownMAC    = openflow.MAC{0x02, 0, 0, 0, 0, 0x01}
	radioMAC  = openflow.MAC{0x02, 0, 0, 0, 0xaa, 0x02}
	routerMAC = openflow.MAC{0x02, 0, 0, 0, 0xbb, 0x03}
)

func TestARP(t *testing.T) {
	mine, theirs := netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.1")
	request := packet.AppendARPRequest(nil, ownMAC, mine, theirs, 0)
	outbound(request, ownMAC, radioMAC)
	if want := packet.AppendARPRequest(nil, radioMAC, mine, theirs, 0); !bytes.Equal(request, want) {
		t.Errorf("request leaves as\n%x, want\n%x", request, want)
	}
	reply := packet.AppendARP(nil, packet.Frame{Dst: radioMAC, Src: routerMAC},
		packet.ARPMessage{Op: packet.ARPReply, SenderMAC: routerMAC, Sender: theirs, TargetMAC: radioMAC, Target: mine})
	inbound(reply, ownMAC, radioMAC)
	want := packet.AppendARP(nil, packet.Frame{Dst: ownMAC, Src: routerMAC},
		packet.ARPMessage{Op: packet.ARPReply, SenderMAC: routerMAC, Sender: theirs, TargetMAC: ownMAC, Target: mine})
	if !bytes.Equal(reply, want) {
		t.Errorf("reply arrives as\n%x, want\n%x", reply, want)
	}
}

// solicitation returns a neighbour solicitation with options, with a checksum that gopacket
// computes.
func solicitation(t testing.TB, source openflow.MAC, option openflow.MAC) []byte {
	t.Helper()
	ip := &layers.IPv6{
		Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6,
		SrcIP: net.ParseIP("fe80::1"), DstIP: net.ParseIP("ff02::1:ff00:2"),
	}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: source[:], DstMAC: net.HardwareAddr{0x33, 0x33, 0xff, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv6},
		ip, icmp, &layers.ICMPv6NeighborSolicitation{
			TargetAddress: net.ParseIP("fe80::2"),
			Options: layers.ICMPv6Options{
				{Type: layers.ICMPv6OptMTU, Data: make([]byte, 6)},
				{Type: layers.ICMPv6OptSourceAddress, Data: option[:]},
			},
		})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestNeighbourDiscovery compares with the frame that gopacket builds for the wanted address,
// including the checksum.
func TestNeighbourDiscovery(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		address := func(name string) openflow.MAC {
			return openflow.MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(r, name))
		}
		from, to := address("from"), address("to")
		got, want := solicitation(t, from, from), solicitation(t, to, to)
		outbound(got, from, to)
		// 0x0000 and 0xffff are the same sum; a sender never writes the former.
		if !bytes.Equal(got, want) {
			g, w := be.Uint16(got[icmp6Sum:]), be.Uint16(want[icmp6Sum:])
			if !(g == 0 && w == 0xffff || g == 0xffff && w == 0) {
				r.Fatalf("got\n%x, want\n%x", got, want)
			}
		}
	})
}

func TestStrangersStay(t *testing.T) {
	b := solicitation(t, ownMAC, routerMAC)
	outbound(b, ownMAC, radioMAC)
	if want := solicitation(t, radioMAC, routerMAC); !bytes.Equal(b, want) {
		t.Errorf("an option with another address was changed: %x", b)
	}
}
