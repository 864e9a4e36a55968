package network_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/network/packet"
)

// kept stores hosts over restarts of a network.
type kept struct {
	mu   sync.Mutex
	all  map[string]network.HostRecord
	full atomic.Bool
}

func (k *kept) remember(_ context.Context, changed []network.HostNote) error {
	if k.full.Load() {
		return errors.New("no room")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[string]network.HostRecord{}
	}
	for _, n := range changed {
		if delete(k.all, n.MAC.String()); !n.Gone {
			k.all[n.MAC.String()] = n.Record
		}
	}
	return nil
}

func (k *kept) records() (all []network.HostRecord) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.all {
		all = append(all, r)
	}
	return all
}

// answering returns a switch whose host behind port 1 answers for its address as long as it is
// there, and sends nothing else.
func answering(host int, there *atomic.Bool) *fake.Switch {
	var s *fake.Switch
	s = fake.NewSwitch(fake.Options{DPID: 1, Ports: 2, OnOutput: func(port uint32, frame []byte) {
		h, err := packet.Parse(frame)
		if err == nil && port == 1 && there.Load() && h.Has(packet.ARP) && h.ARPOp == packet.ARPRequest && h.Dst == networktest.HostAddr(host).Addr() {
			go s.Receive(1, packet.AppendARPReply(nil, &h, networktest.HostMAC(host))) //nolint:errcheck // it may have ended
		}
	}})
	return s
}

// TestHostsAreRememberedOverARestart checks claims about a silent host right after a restart,
// before and after its own switch has connected: the host is probed as soon as possible, and the
// claim is accepted only if it does not answer then. Later changes are stored again.
func TestHostsAreRememberedOverARestart(t *testing.T) {
	t.Parallel()
	const victim, thief = 1, 2
	for name, c := range map[string]struct {
		claimed   int // by whose MAC address
		stays     bool
		late      bool // the claim comes when the victim's switch is there
		comesBack bool // that switch
	}{
		"its address, early":            {claimed: thief, stays: true, comesBack: true},
		"its place, early":              {claimed: victim, stays: true, comesBack: true},
		"its address, late":             {claimed: thief, stays: true, comesBack: true, late: true},
		"its place, late":               {claimed: victim, stays: true, comesBack: true, late: true},
		"has moved, early":              {claimed: victim, comesBack: true},
		"has moved, late":               {claimed: victim, comesBack: true, late: true},
		"has moved from a dead switch":  {claimed: victim},
		"its address is now another's":  {claimed: thief, comesBack: true},
		"of a dead switch, now another": {claimed: thief},
	} {
		t.Run(name, func(t *testing.T) {
			var memory kept
			var there atomic.Bool
			there.Store(true)
			left, right := answering(victim, &there), fake.NewSwitch(fake.Options{DPID: 2, Ports: 2})
			config := func() network.Config {
				return network.Config{HostConfirm: 50 * time.Millisecond, HostGrace: time.Second, Remembered: memory.records(), Remember: memory.remember}
			}
			say := func(s *fake.Switch, mac int) {
				t.Helper()
				if _, err := s.Receive(1, packet.AppendARPRequest(nil, networktest.HostMAC(mac), networktest.HostAddr(victim).Addr(), netip.MustParseAddr("10.9.9.9"), 0)); err != nil {
					t.Fatal(err)
				}
			}
			n, stop := networktest.Start(t, config())
			gone := networktest.Connect(t, n, left, 1)
			networktest.Edges(t, n, 1, 2)
			say(left, victim)
			networktest.Eventually(t, "the victim to be known", func() bool { _, known := n.HostByIP(networktest.HostAddr(victim).Addr()); return known })
			stop()
			gone()

			there.Store(c.stays)
			n, stop = networktest.Start(t, config())
			if h, known := n.HostByIP(networktest.HostAddr(victim).Addr()); !known || h.MAC != networktest.HostMAC(victim) || h.At != (network.PortRef{Switch: 1, Port: 1}) {
				t.Fatalf("the victim is known: %v, %+v", known, h)
			}
			var taken atomic.Bool
			n.Subscribe(func(e network.Event) {
				if e.Kind == network.HostMoved || e.Kind == network.HostChanged && e.Host.MAC == networktest.HostMAC(victim) {
					taken.Store(true)
				}
			})
			networktest.Connect(t, n, right, 2)
			networktest.Edges(t, n, 2, 2)
			if c.late {
				networktest.Connect(t, n, left, 1)
			}
			say(right, c.claimed)
			if !c.late && c.comesBack {
				networktest.Eventually(t, "the claim to have come", func() bool { s, _ := n.Switch(2); return s.Stats().PacketIns > 0 })
				networktest.Connect(t, n, left, 1)
			}
			if c.stays {
				networktest.Eventually(t, "the victim to have answered", func() bool { return n.HostStats().Refused["answered"] > 0 })
				if taken.Load() {
					t.Error("the claim was believed for a time")
				}
			} else {
				networktest.Eventually(t, "the claim to be believed", func() bool {
					h, _ := n.HostByIP(networktest.HostAddr(victim).Addr())
					return h.MAC == networktest.HostMAC(c.claimed) && h.At.Switch == 2
				})
			}
			want := network.PortRef{Switch: 1, Port: 1}
			if !c.stays && c.claimed == victim {
				want.Switch = 2
			}
			stop()
			if i := slices.IndexFunc(memory.records(), func(r network.HostRecord) bool { return r.MAC == networktest.HostMAC(victim) && r.At == want }); i < 0 {
				t.Errorf("kept: %+v", memory.records())
			}
		})
	}
}

// TestHostsAreKeptWhenThereIsRoomAgain checks that a full store causes one log line, and that
// changes are stored once it has room again.
func TestHostsAreKeptWhenThereIsRoomAgain(t *testing.T) {
	var memory kept
	memory.full.Store(true)
	n, stop := networktest.Start(t, network.Config{Remember: memory.remember})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 2})
	networktest.Connect(t, n, s, 1)
	networktest.Edges(t, n, 1, 2)
	for i := range 2 {
		if _, err := s.Receive(uint32(i+1), networktest.Frame(i+1, 9)); err != nil {
			t.Fatal(err)
		}
	}
	networktest.Eventually(t, "the hosts to be known, and not kept", func() bool { return len(n.Hosts()) == 2 && n.HostStats().Unsaved == 2 })
	memory.full.Store(false)
	stop()
	if got := memory.records(); len(got) != 2 || n.HostStats().Unsaved != 0 {
		t.Errorf("kept at the end: %+v", got)
	}
}

// TestHostsOfASwitchThatIsAwayForAMomentAreAsked checks that the hosts of a switch that loses its
// connection for a moment cannot be taken over meanwhile: they are probed when the switch is back.
func TestHostsOfASwitchThatIsAwayForAMomentAreAsked(t *testing.T) {
	const victim, thief = 1, 2
	for name, claimed := range map[string]int{"its address": thief, "its place": victim} {
		t.Run(name, func(t *testing.T) {
			n, _ := networktest.Start(t, network.Config{HostConfirm: 50 * time.Millisecond})
			var there atomic.Bool
			there.Store(true)
			left, right := answering(victim, &there), fake.NewSwitch(fake.Options{DPID: 2, Ports: 2})
			leave := networktest.Connect(t, n, left, 1)
			networktest.Connect(t, n, right, 2)
			networktest.Edges(t, n, 1, 2)
			networktest.Edges(t, n, 2, 2)
			say := func(s *fake.Switch, mac int) {
				if _, err := s.Receive(1, packet.AppendARPRequest(nil, networktest.HostMAC(mac), networktest.HostAddr(victim).Addr(), netip.MustParseAddr("10.9.9.9"), 0)); err != nil {
					t.Fatal(err)
				}
			}
			say(left, victim)
			networktest.Eventually(t, "the victim to be known", func() bool { _, known := n.HostByIP(networktest.HostAddr(victim).Addr()); return known })
			leave()
			networktest.Down(t, n, 1)
			s, _ := n.Switch(2)
			before := s.Stats().PacketIns
			say(right, claimed)
			networktest.Eventually(t, "the claim to have come", func() bool { return s.Stats().PacketIns > before })
			n.Subscribe(func(e network.Event) {
				if e.Kind == network.HostMoved || e.Kind == network.HostChanged {
					t.Errorf("believed: %+v", e)
				}
			})
			networktest.Connect(t, n, left, 1)
			networktest.Eventually(t, "the victim to have answered", func() bool { return n.HostStats().Refused["answered"] > 0 })
			if h, _ := n.HostByIP(networktest.HostAddr(victim).Addr()); h.MAC != networktest.HostMAC(victim) || h.At.Switch != 1 {
				t.Errorf("the address is %v's at %v", h.MAC, h.At)
			}
		})
	}
}
