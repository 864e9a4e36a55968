package network_test

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestHostsThatAnswerLateGetBackWhatIsTheirs checks that a host which could not answer in time,
// when another one claimed its address or its place, gets both back when it answers, and that all
// hosts are told the owner of the address.
func TestHostsThatAnswerLateGetBackWhatIsTheirs(t *testing.T) {
	t.Parallel()
	const victim, thief, talker = 1, 2, 3 // hosts, each at the port of its number
	for name, claim := range map[string]func() (port uint32, frame []byte){
		"its address": func() (uint32, []byte) {
			return thief, packet.AppendARPRequest(nil, networktest.HostMAC(thief), networktest.HostAddr(victim).Addr(), networktest.HostAddr(victim).Addr(), 0)
		},
		"its place": func() (uint32, []byte) {
			return thief, packet.AppendARPRequest(nil, networktest.HostMAC(victim), networktest.HostAddr(victim).Addr(), networktest.HostAddr(talker).Addr(), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := networktest.Start(t, network.Config{HostConfirm: 50 * time.Millisecond})
			var awake atomic.Bool
			var told atomic.Int64 // announcements that the talker has heard since
			var s *fake.Switch
			s = fake.NewSwitch(fake.Options{DPID: 1, Ports: 3, OnOutput: func(port uint32, frame []byte) {
				h, err := packet.Parse(frame)
				if err != nil || !h.Has(packet.ARP) || h.ARPOp != packet.ARPRequest {
					return
				}
				if port == victim && h.Dst == networktest.HostAddr(victim).Addr() && awake.Load() && h.EthSrc != networktest.HostMAC(victim) {
					go s.Receive(victim, packet.AppendARPReply(nil, &h, networktest.HostMAC(victim))) //nolint:errcheck // it has ended
				}
				if port == talker && h.Src == networktest.HostAddr(victim).Addr() && h.EthSrc == networktest.HostMAC(victim) {
					told.Add(1)
				}
			}})
			networktest.Connect(t, n, s, 1)
			networktest.Edges(t, n, 1, 3)
			for i := range 3 {
				if _, err := s.Receive(uint32(i+1), packet.AppendARPRequest(nil, networktest.HostMAC(i+1), networktest.HostAddr(i+1).Addr(), netip.MustParseAddr("10.9.9.9"), 0)); err != nil {
					t.Fatal(err)
				}
			}
			is := func(mac openflow.MAC, port uint32) func() bool {
				return func() bool {
					h, known := n.HostByIP(networktest.HostAddr(victim).Addr())
					return known && h.MAC == mac && h.At.Port == port
				}
			}
			networktest.Eventually(t, "the hosts to be known", is(networktest.HostMAC(victim), victim))
			port, frame := claim()
			h, err := packet.Parse(frame)
			if err != nil {
				t.Fatal(err)
			}
			networktest.Eventually(t, "the claim to be believed", func() bool {
				if _, err := s.Receive(port, frame); err != nil {
					t.Fatal(err)
				}
				return is(h.EthSrc, thief)()
			})
			told.Store(0)
			awake.Store(true)
			networktest.Eventually(t, "the victim to have back what is its", is(networktest.HostMAC(victim), victim))
			if h.EthSrc != networktest.HostMAC(victim) {
				networktest.Eventually(t, "the others to be told, and told again", func() bool { return told.Load() > 1 })
			}
		})
	}
}

// TestHostsBehindASwitchThatStandsStillKeepTheirPlace checks that a host has time to answer from
// the moment at which its stalled switch continues, because the switch delays both the probe and
// the answer.
func TestHostsBehindASwitchThatStandsStillKeepTheirPlace(t *testing.T) {
	const victim, thief = 1, 2
	const confirm = 100 * time.Millisecond
	n, _ := networktest.Start(t, network.Config{HostConfirm: confirm})
	var still atomic.Bool
	goOn := make(chan struct{})
	var s *fake.Switch
	s = fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, Instead: func(uint32, openflow.Message) ([]byte, bool) {
		if still.Load() {
			<-goOn
		}
		return nil, false
	}, OnOutput: func(port uint32, frame []byte) {
		h, err := packet.Parse(frame)
		if err == nil && port == victim && h.Has(packet.ARP) && h.ARPOp == packet.ARPRequest && h.Dst == networktest.HostAddr(victim).Addr() {
			go s.Receive(victim, packet.AppendARPReply(nil, &h, networktest.HostMAC(victim))) //nolint:errcheck // it has ended
		}
	}})
	other := fake.NewSwitch(fake.Options{DPID: 2, Ports: 2})
	networktest.Connect(t, n, s, 1)
	networktest.Connect(t, n, other, 2)
	networktest.Edges(t, n, 1, 2)
	networktest.Edges(t, n, 2, 2)
	say := func(s *fake.Switch, mac int) {
		if _, err := s.Receive(1, packet.AppendARPRequest(nil, networktest.HostMAC(mac), networktest.HostAddr(victim).Addr(), netip.MustParseAddr("10.9.9.9"), 0)); err != nil {
			t.Fatal(err)
		}
	}
	say(s, victim)
	networktest.Eventually(t, "the victim to be known", func() bool { _, known := n.HostByIP(networktest.HostAddr(victim).Addr()); return known })
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.HostMoved {
			t.Errorf("believed: %+v", e)
		}
	})
	still.Store(true)
	say(other, victim)
	time.AfterFunc(5*confirm, func() { close(goOn) })
	networktest.Eventually(t, "the victim to have answered", func() bool { return n.HostStats().Refused["answered"] > 0 })
}
