package network_test

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// announcements are what a host can say, by a MAC address, of an address.
func announcements(mac openflow.MAC, ip netip.Addr, to openflow.MAC, asked netip.Addr) [][]byte {
	arp := func(dst openflow.MAC, op uint16, target netip.Addr) []byte {
		return packet.AppendARP(nil, packet.Frame{Dst: dst, Src: mac}, packet.ARPMessage{Op: op, SenderMAC: mac, Sender: ip, TargetMAC: to, Target: target})
	}
	return [][]byte{
		arp(packet.Broadcast, packet.ARPReply, ip), arp(packet.Broadcast, packet.ARPRequest, ip),
		arp(packet.Broadcast, packet.ARPRequest, asked), arp(to, packet.ARPReply, asked), arp(to, packet.ARPRequest, asked),
	}
}

// A host says in every way that ARP has that another one's address is its own, and that
// the other one, by its MAC address, is where it is itself. Whoever talks to the victim
// goes on talking to the victim.
func TestNobodyTakesAHostsPlace(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Ring("netsteal", 3, delayline.Params{}))
	var refused atomic.Int64
	n, _ := run(t, l, network.Config{}, func(n *network.Network) {
		n.Subscribe(func(e network.Event) {
			if e.Kind == network.HostRefused {
				refused.Add(1)
			}
		})
	})
	ready(t, n, 3, 3, 3)
	ping(t, l, "h1", "h2")
	ping(t, l, "h3", "h1")
	victim, known := n.HostByIP(l.Host("h2").Addr())
	if !known {
		t.Fatal("the victim is not known")
	}
	talker, thief := openflow.MAC(l.Host("h1").MACOf(0)), openflow.MAC(l.Host("h3").MACOf(0))
	raw := openRaw(t, l, "h3", "eth0")
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, mac := range []openflow.MAC{thief, victim.MAC} {
				for _, frame := range announcements(mac, l.Host("h2").Addr(), talker, l.Host("h1").Addr()) {
					raw.send(t, frame)
				}
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	out, err := l.Host("h1").Command(t.Context(), "ping", "-n", "-c", "25", "-i", "0.2", "-W", "2", l.Host("h2").Addr().String()).CombinedOutput()
	close(stop)
	<-ended
	if err != nil || !strings.Contains(string(out), "25 received") {
		t.Errorf("ping: %v\n%s", err, out)
	}
	if h, _ := n.HostByIP(l.Host("h2").Addr()); h.MAC != victim.MAC || h.At != victim.At {
		t.Errorf("the victim is said to be %v at %v, is %v at %v", h.MAC, h.At, victim.MAC, victim.At)
	}
	neighbours, err := l.Host("h1").Command(t.Context(), "ip", "neigh").CombinedOutput()
	if err != nil || strings.Contains(string(neighbours), l.Host("h2").Addr().String()+" dev eth0 lladdr "+thief.String()) {
		t.Errorf("h1 believes the thief: %v\n%s", err, neighbours)
	}
	if refused.Load() == 0 {
		t.Error("no event tells of it")
	}
}

// The same by neighbour discovery: an advertisement in the victim's name.
func TestNobodyTakesAnIPv6Address(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Ring("netsteal6", 3, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 3, 3, 3)
	ping(t, l, "h3", "h1")
	mac, thief := openflow.MAC(l.Host("h2").MACOf(0)), openflow.MAC(l.Host("h3").MACOf(0))
	addr := netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	ping6 := func() {
		out, err := l.Host("h1").Command(t.Context(), "ping", "-6", "-n", "-c", "5", "-i", "0.2", "-W", "2", addr.String()+"%eth0").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "5 received") {
			t.Errorf("ping: %v\n%s", err, out)
		}
	}
	ping6()
	networktest.Eventually(t, "the victim's address to be known", func() bool { _, known := n.HostByIP(addr); return known })
	refused := func() uint64 { return n.HostStats().Refused["answered"] }
	before := refused()
	raw := openRaw(t, l, "h3", "eth0")
	all := netip.MustParseAddr("ff02::1")
	raw.send(t, packet.AppendNeighborAdvertisement(nil, packet.Frame{Dst: openflow.MAC{0x33, 0x33, 5: 1}, Src: thief},
		packet.Advertisement{Target: addr, MAC: thief, To: all, Flags: packet.NDOverride}))
	networktest.Eventually(t, "the victim to answer", func() bool { return refused() > before })
	if h, _ := n.HostByIP(addr); h.MAC != mac {
		t.Errorf("its address is said to be %v's", h.MAC)
	}
	ping6()
}

// An address that its host has given up is believed to be another's, once the first has not
// answered, and what the other has said then reaches everybody: a virtual address of two
// servers does so when it changes hands.
func TestSilentHostsAreBelievedToHaveMoved(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Ring("netmove", 3, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 3, 3, 3)
	ping(t, l, "h1", "h2")
	ping(t, l, "h3", "h1")
	addr := l.Host("h2").Addr()
	old, _ := n.HostByIP(addr)
	next, known := n.HostByIP(l.Host("h3").Addr())
	if !known {
		t.Fatal("the next host is not known")
	}
	shell := func(host string, args ...string) string {
		out, err := l.Host(host).Command(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %v\n%s", host, args, err, out)
		}
		return string(out)
	}
	shell("h2", "ip", "addr", "flush", "dev", "eth0")
	shell("h3", "ip", "addr", "add", addr.String()+"/32", "dev", "eth0")
	raw := openRaw(t, l, "h3", "eth0")
	announce := announcements(next.MAC, addr, old.MAC, addr)[0]
	networktest.Eventually(t, "the address to be the other host's", func() bool {
		raw.send(t, announce)
		h, _ := n.HostByIP(addr)
		return h.MAC == next.MAC && h.At == next.At
	})
	networktest.Eventually(t, "h1 to have heard it", func() bool {
		raw.send(t, announce) // Linux takes no news within a second of the last
		return strings.Contains(shell("h1", "ip", "neigh"), addr.String()+" dev eth0 lladdr "+next.MAC.String())
	})
	ping(t, l, "h1", "h2") // its address, which is h3's now
}
