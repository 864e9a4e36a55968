package hosts_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
)

// serviceIP returns one of the addresses that change hands.
func serviceIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}) }

// serve makes the victim the holder of further addresses.
func (d *claimTest) serve(count int) {
	for i := range count {
		d.claims(1, serviceIP(i), home)
	}
	d.now = d.now.Add(time.Minute)
}

// holder returns the number of the host that has an address, by its MAC address.
func (d *claimTest) holder(addr netip.Addr) int {
	h, _ := d.ByIP(addr)
	return int(h.MAC[5])
}

// TestAllAddressesOfOneRoundMove checks that a host which takes over eight addresses at once, as
// keepalived does, has all of them when the time to answer is over, and that nobody is told the old
// owner meanwhile. The former owner keeps what it answers for.
func TestAllAddressesOfOneRoundMove(t *testing.T) {
	const addresses, kept = 8, 5
	d := newClaimTest(t, hosts.Options{})
	d.serve(addresses)
	for i := range addresses {
		if n, ok := d.Neighbor(serviceIP(i), 0); !ok || n.MAC != macOf(1) {
			t.Fatalf("%v before: %+v %v", serviceIP(i), n, ok)
		}
		x := pendingClaim(t, d.claims(2, serviceIP(i), other))
		if q := x.Question(); len(q.Ask) != 1 || q.Ask[0] != serviceIP(i) || q.Host.At != home {
			t.Errorf("asked for %v: %+v", serviceIP(i), q)
		}
		if n, ok := d.Neighbor(serviceIP(i), 0); ok {
			t.Errorf("%v is said to be at %v while its holder is asked", serviceIP(i), n.MAC)
		}
	}
	if c := d.HandleAnswer(d.headers(1, serviceIP(kept)), home, d.now); len(c) != 1 || c[0].Reason != hosts.Answered {
		t.Errorf("it answers for one: %+v", c)
	}
	d.after(confirm)
	for i := range addresses {
		want := 2
		if i == kept {
			want = 1
		}
		if n, ok := d.Neighbor(serviceIP(i), 0); !ok || n.MAC != macOf(want) {
			t.Errorf("%v is at %v, %v; want host %d", serviceIP(i), n.MAC, ok, want)
		}
	}
}

// TestAddressesClaimedOnTheMove checks that a host which has moved and says what addresses it has
// taken over, while it is asked whether it has moved, gets all of them.
func TestAddressesClaimedOnTheMove(t *testing.T) {
	const addresses = 8
	d := newClaimTest(t, hosts.Options{})
	d.serve(addresses)
	d.claims(2, netip.MustParseAddr("10.0.0.2"), topology.PortRef{Switch: 3, Port: 1})
	d.now = d.now.Add(time.Minute)
	for i := range addresses {
		d.claims(2, serviceIP(i), other)
	}
	if x := d.PendingClaim(d.headers(2, serviceIP(3)), other); x == nil || x.Question().Host.MAC != macOf(2) {
		t.Errorf("the claim that it has moved: %+v", x)
	}
	d.after(confirm)
	if x := d.PendingClaim(d.headers(2, serviceIP(3)), other); x == nil || x.Question().Host.MAC != macOf(1) {
		t.Errorf("the claim to the address: %+v", x)
	}
	d.after(confirm)
	for i := range addresses {
		if h := d.holder(serviceIP(i)); h != 2 {
			t.Errorf("%v is at host %d", serviceIP(i), h)
		}
	}
	if x := d.PendingClaim(d.headers(2, serviceIP(3)), other); x != nil {
		t.Errorf("still pending: %+v", x)
	}
}

// TestNewestClaimCounts checks that of two hosts which claim an address while its holder is asked,
// the later one gets it, and that claims which join move from one port's share to the other's.
func TestNewestClaimCounts(t *testing.T) {
	d := newClaimTest(t, hosts.Options{})
	third := topology.PortRef{Switch: 3, Port: 3}
	x := pendingClaim(t, d.claims(2, victimIP, other))
	d.now = d.now.Add(confirm / 3)
	if c := d.claims(3, victimIP, third); len(c) != 2 || c[1].Kind != hosts.ClaimPending || c[1].Claim != x || c[1].New {
		t.Errorf("claimed by another: %+v", c)
	}
	d.now = d.now.Add(2 * confirm / 3)
	changes, _, left := d.CheckClaims(d.now)
	if len(changes) == 0 || changes[0].Kind != hosts.ClaimAccepted || changes[0].From != third || left {
		t.Errorf("%+v, left: %v", changes, left)
	}
	if h := d.holder(victimIP); h != 3 {
		t.Errorf("the address is at host %d, want the one that claimed it last", h)
	}
}

// TestClaimFollowsTheHolder checks that a claim to an address is settled where the holder is now if
// it has moved meanwhile, and not without end.
func TestClaimFollowsTheHolder(t *testing.T) {
	d := newClaimTest(t, hosts.Options{})
	x := pendingClaim(t, d.claims(2, victimIP, other))
	for i := range 3 {
		next := topology.PortRef{Switch: 5, Port: uint32(1 + i)}
		d.Place(macOf(1), netip.Addr{}, next, d.now)
		if kinds := d.after(confirm / 2); !slices.Equal(kinds, []hosts.Kind{hosts.ClaimPending}) || x.Question().Host.At != next {
			t.Errorf("move %d: %v, asked at %v", i, kinds, x.Question().Host.At)
		}
	}
	d.Place(macOf(1), netip.Addr{}, home, d.now)
	d.after(confirm)
	if h := d.holder(victimIP); h != 2 {
		t.Errorf("the address is at host %d", h)
	}
}

// world is a network in which addresses and hosts move at random. Hosts answer truthfully.
type world struct {
	*claimTest
	rng     *rand.Rand
	owner   map[netip.Addr]int
	places  map[int]topology.PortRef
	queue   []worldEvent // ascending
	pending map[netip.Addr]pendingTruth
}

type worldEvent struct {
	at time.Time
	do func()
}

// pendingTruth is a true claim that is pending.
type pendingTruth struct {
	owner int
	since time.Time
}

func (w *world) later(d time.Duration, do func()) {
	e := worldEvent{w.now.Add(d), do}
	i := slices.IndexFunc(w.queue, func(o worldEvent) bool { return o.at.After(e.at) })
	if i < 0 {
		i = len(w.queue)
	}
	w.queue = slices.Insert(w.queue, i, e)
}

// handle makes the hosts answer what they are asked, now and, as after a wrong decision, later.
func (w *world) handle(changes []hosts.Change) {
	for _, c := range changes {
		switch {
		case c.Kind == hosts.ClaimRefused: // it has answered a moment ago, before it lost the address
			maps.DeleteFunc(w.pending, func(addr netip.Addr, _ pendingTruth) bool { return slices.Contains(c.Host.IPs, addr) })
		case c.Kind == hosts.ClaimPending && c.New:
			w.ask(c.Claim.Question(), w.delay(confirm/4))
		case c.Kind == hosts.Moved:
			was := c.Host
			was.At = c.From
			w.ask(hosts.Question{Host: was, Ask: hosts.AddressesToAsk(was.IPs)}, time.Second)
		case c.Lost.IsValid():
			w.ask(hosts.Question{Host: c.Host, Ask: []netip.Addr{c.Lost}}, time.Second)
		}
	}
}

func (w *world) delay(most time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(most)))
}

func (w *world) ask(q hosts.Question, after time.Duration) {
	w.later(after, func() {
		host := int(q.Host.MAC[5])
		for _, addr := range q.Ask {
			if w.places[host] == q.Host.At && w.owner[addr] == host {
				w.handle(w.HandleAnswer(w.headers(host, addr), q.Host.At, w.now))
				w.announce(addr, false)
			}
		}
	})
}

// announce sends a packet of the owner of an address, and notes whether it has to be believed.
func (w *world) announce(addr netip.Addr, note bool) {
	w.now = w.now.Add(time.Microsecond)
	changes := w.claims(w.owner[addr], addr, w.places[w.owner[addr]])
	for _, c := range changes {
		if c.Kind == hosts.ClaimPending && note {
			w.pending[addr] = pendingTruth{w.owner[addr], w.now}
		}
	}
	w.handle(changes)
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	const step = 10 * time.Millisecond
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(step)
		for len(w.queue) > 0 && !w.queue[0].at.After(w.now) {
			e := w.queue[0]
			w.queue = w.queue[1:]
			e.do()
		}
		changes, again, _ := w.CheckClaims(w.now)
		w.handle(changes)
		for _, x := range again {
			w.ask(x.Question(), w.delay(confirm/4))
		}
		for addr, p := range w.pending {
			switch h := w.holder(addr); {
			case h == p.owner:
				delete(w.pending, addr)
			case w.now.Sub(p.since) > 10*confirm:
				w.t.Fatalf("%v after host %d claimed %v, which nobody else has, it is at host %d", w.now.Sub(p.since), p.owner, addr, h)
			}
		}
	}
}

// TestAddressesMoveInAnyOrder lets addresses and hosts move at random, many at one time. Each true
// claim that is pending is believed within some times to answer, and after two rounds of
// announcements, as keepalived makes them, every address is where it belongs.
func TestAddressesMoveInAnyOrder(t *testing.T) {
	const addresses, hostCount, ports, steps = 10, 6, 12, 120
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{
				claimTest: newClaimTest(t, hosts.Options{}), rng: rand.New(rand.NewPCG(seed, 42)),
				owner: map[netip.Addr]int{}, places: map[int]topology.PortRef{}, pending: map[netip.Addr]pendingTruth{},
			}
			port := func(i int) topology.PortRef {
				return topology.PortRef{Switch: 10, Port: uint32(i)}
			}
			var all []netip.Addr
			for h := range hostCount {
				w.places[10+h] = port(h)
			}
			for i := range addresses {
				all = append(all, serviceIP(i))
				w.owner[serviceIP(i)] = 10 + w.rng.IntN(hostCount)
				w.announce(serviceIP(i), false)
			}
			for range steps {
				switch w.rng.IntN(8) {
				case 0: // a host moves, and says so
					h, to := 10+w.rng.IntN(hostCount), port(w.rng.IntN(ports))
					w.places[h] = to
					for _, addr := range all {
						if delete(w.pending, addr); w.owner[addr] == h {
							w.announce(addr, false)
						}
					}
				case 1, 2: // all addresses of a host go to another
					from, to := 10+w.rng.IntN(hostCount), 10+w.rng.IntN(hostCount)
					for _, addr := range all {
						if w.owner[addr] == from {
							w.owner[addr] = to
							delete(w.pending, addr)
							w.announce(addr, true)
						}
					}
				case 3, 4: // one goes
					addr := all[w.rng.IntN(addresses)]
					w.owner[addr] = 10 + w.rng.IntN(hostCount)
					delete(w.pending, addr)
					w.later(w.delay(confirm/2), func() { w.announce(addr, false) })
				default:
					w.run(w.delay(2 * confirm))
				}
				for _, addr := range all {
					for _, h := range []int{10, 11, 12} {
						if x := w.PendingClaim(w.headers(h, addr), w.places[h]); x != nil && x.Question().Host.MAC != macOf(h) {
							if n, ok := w.Neighbor(addr, 0); ok {
								t.Fatalf("%v is said to be at %v while a claim to it is pending", addr, n.MAC)
							}
						}
					}
				}
			}
			for range 2 {
				w.run(5 * time.Second)
				for _, addr := range all {
					w.announce(addr, false)
				}
			}
			w.run(5 * time.Second)
			for _, addr := range all {
				h, _ := w.ByIP(addr)
				if h.MAC != macOf(w.owner[addr]) || h.At != w.places[w.owner[addr]] {
					t.Errorf("%v is at %v %v, want host %d at %v", addr, h.MAC, h.At, w.owner[addr], w.places[w.owner[addr]])
				}
				if _, ok := w.Neighbor(addr, 0); !ok {
					t.Errorf("nobody is told where %v is", addr)
				}
			}
			if _, _, left := w.CheckClaims(w.now); left {
				t.Error("claims are left")
			}
		})
	}
}

// TestContestedAddressesOfIPv6 checks that solicitations for a contested address are not answered
// either.
func TestContestedAddressesOfIPv6(t *testing.T) {
	d := newClaimTest(t, hosts.Options{})
	addr := netip.MustParseAddr("fd00::1")
	advertise := func(mac int, at topology.PortRef) {
		h, err := packet.Parse(packet.AppendNeighborAdvertisement(nil, packet.Frame{Dst: macOf(9), Src: macOf(mac)},
			packet.Advertisement{Target: addr, MAC: macOf(mac), To: netip.MustParseAddr("ff02::1"), Flags: packet.NDOverride}))
		if err != nil {
			t.Fatal(err)
		}
		d.Learn(&h, at, d.now)
	}
	advertise(1, home)
	d.now = d.now.Add(time.Minute)
	if n, ok := d.Neighbor(addr, 0); !ok || n.MAC != macOf(1) {
		t.Fatalf("%+v", n)
	}
	advertise(2, other)
	if n, ok := d.Neighbor(addr, 0); ok {
		t.Errorf("%+v", n)
	}
	d.after(confirm)
	if n, ok := d.Neighbor(addr, 0); !ok || n.MAC != macOf(2) {
		t.Errorf("%+v", n)
	}
}
