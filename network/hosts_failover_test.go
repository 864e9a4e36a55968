package network_test

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestAllAddressesMoveAtOnce checks that eight addresses which move in one round of announcements,
// as keepalived makes them, all move: the table has all of them at the new host, each announcement
// reaches the others, and as long as the former owner is asked nobody is told that it has them. One
// of them is claimed by a third host just before, whose announcement is not passed on.
func TestAllAddressesMoveAtOnce(t *testing.T) {
	t.Parallel()
	const master, backup, third, talker = 1, 2, 3, 4 // hosts, each at the port of its number
	const addresses, first = 8, 100
	addr := func(i int) netip.Addr { return networktest.HostAddr(first + i).Addr() }
	var mu sync.Mutex
	var asked bool                                             // the master was asked
	announced := map[netip.Addr]map[openflow.MAC]bool{}        // announcements that the talker has heard
	answered, queried := map[openflow.MAC]int{}, map[int]int{} // answers to the talker by who is named, and ports that heard its query
	n, _ := networktest.Start(t, network.Config{HostConfirm: time.Second})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: talker, OnOutput: func(port uint32, frame []byte) {
		h, err := packet.Parse(frame)
		if err != nil || !h.Has(packet.ARP) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case port == talker && h.ARPOp == packet.ARPReply:
			answered[h.EthSrc]++
		case port == talker && h.Src == h.Dst:
			if announced[h.Src] == nil {
				announced[h.Src] = map[openflow.MAC]bool{}
			}
			announced[h.Src][h.EthSrc] = true
		case h.EthSrc == networktest.HostMAC(talker):
			queried[int(port)]++
		case port == master && h.Dst != networktest.HostAddr(master).Addr():
			asked = true
		}
	}})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, talker)
	say := func(host int, addr, to netip.Addr) {
		if _, err := s.Receive(uint32(host), packet.AppendARPRequest(nil, networktest.HostMAC(host), addr, to, 0)); err != nil {
			t.Fatal(err)
		}
	}
	at := func(host, from, count int) bool {
		for i := from; i < from+count; i++ {
			h, known := n.HostByIP(addr(i))
			if !known || h.MAC != networktest.HostMAC(host) || h.At.Port != uint32(host) {
				return false
			}
		}
		return true
	}
	locked := func(f func() bool) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return f()
		}
	}
	for h := master; h <= talker; h++ {
		say(h, networktest.HostAddr(h).Addr(), networktest.HostAddr(99).Addr())
	}
	for i := range addresses {
		say(master, addr(i), addr(i))
	}
	networktest.Eventually(t, "the master to have all addresses", func() bool { return at(master, 0, addresses) })
	mu.Lock()
	clear(announced)
	mu.Unlock()

	say(third, addr(0), addr(0))
	for i := range addresses {
		say(backup, addr(i), addr(i))
	}
	networktest.Eventually(t, "the master to be asked", locked(func() bool { return asked }))
	say(talker, networktest.HostAddr(talker).Addr(), addr(5))
	networktest.Eventually(t, "the query to be answered or passed on", locked(func() bool { return queried[backup] > 0 || len(answered) > 0 }))
	networktest.Eventually(t, "the backup to have all addresses", func() bool { return at(backup, 0, addresses) })
	networktest.Eventually(t, "the others to hear of all", locked(func() bool { return len(announced) == addresses }))
	mu.Lock()
	for i := range addresses {
		if !announced[addr(i)][networktest.HostMAC(backup)] || len(announced[addr(i)]) != 1 {
			t.Errorf("%v was announced to be at %v", addr(i), announced[addr(i)])
		}
	}
	if n := answered[networktest.HostMAC(master)]; n > 0 {
		t.Error("the talker was told that the master has the address while it is asked")
	}
	mu.Unlock()
	say(talker, networktest.HostAddr(talker).Addr(), addr(5))
	networktest.Eventually(t, "the query to be answered with the new owner", locked(func() bool { return answered[networktest.HostMAC(backup)] > 0 }))
}
