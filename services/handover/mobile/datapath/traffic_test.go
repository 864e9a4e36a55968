package datapath_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// TestTraffic checks which packets count as heard: only those for the device itself, including
// copies, but neither those of which probes consist nor those that a host at the edge sends to
// all.
func TestTraffic(t *testing.T) {
	d := newDevice(t)
	dp := d.opened(t, d.config())
	dp.use(wifi, wifi, lte)
	traffic := func(name string) (now datapath.Traffic) {
		t.Helper()
		err := d.do(func() (err error) {
			now, err = dp.inner.Traffic(name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	start := [2]datapath.Traffic{traffic(wifi), traffic(lte)}
	inside, byWifi, byLTE := d.tap(t, vni), d.world.tap(t, "ap-"+wifi), d.world.tap(t, "ap-"+lte)
	pong := assemble(ether(apMAC, wifiMAC, layers.EthernetTypeIPv4),
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: peer4.AsSlice(), DstIP: own4.AsSlice()},
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(0, 0), Id: 1, Seq: 1}, gopacket.Payload("pong"))
	all := udp4(apMAC, allStations, peer4, netip.MustParseAddr("255.255.255.255"), 9, 1)
	said := arp(apMAC, wifiMAC, 2, apMAC, peer4, wifiMAC, own4)
	for _, f := range [][]byte{pong, all, said, udp4(apMAC, wifiMAC, peer4, own4, 9, 2)} {
		byWifi.send(t, f)
		inside.next(t)
	}
	byLTE.send(t, udp4(apMAC, lteMAC, peer4, own4, 9, 2)) // the copy
	eventually(t, "the copy is counted", func() bool { return dp.stats().Interfaces[lte].Doubled == 1 })
	inside.send(t, udp4(vniMAC, apMAC, own4, peer4, 9, 3))
	byWifi.next(t)
	for i, want := range []datapath.Traffic{{Sent: 1, Heard: 1}, {Heard: 1}} {
		now := traffic([]string{wifi, lte}[i])
		if now.Quiet <= 0 || now.Quiet > time.Minute {
			t.Errorf("interface %d: it has heard %v ago", i, now.Quiet)
		}
		if got := (datapath.Traffic{Sent: now.Sent - start[i].Sent, Heard: now.Heard - start[i].Heard}); got != want {
			t.Errorf("interface %d: %+v, want %+v", i, got, want)
		}
	}
	if err := d.do(func() error { _, err := dp.inner.Traffic("eth9"); return err }); !errors.Is(err, datapath.ErrUnknownInterface) {
		t.Errorf("error %v", err)
	}
}
