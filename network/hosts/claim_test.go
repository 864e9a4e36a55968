package hosts_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

const confirm = 300 * time.Millisecond

var (
	victimIP    = netip.MustParseAddr("10.0.0.1")
	home, other = topology.PortRef{Switch: 1, Port: 1}, topology.PortRef{Switch: 2, Port: 7}
)

// claimTest is a table in which a victim, with MAC address 1, is at its port.
type claimTest struct {
	*hosts.Table
	t   *testing.T
	now time.Time
}

func newClaimTest(t *testing.T, o hosts.Options) *claimTest {
	o.Confirm = confirm
	d := &claimTest{Table: open(o), t: t, now: time.Now()}
	d.claims(1, victimIP, home)
	d.now = d.now.Add(time.Minute)
	return d
}

func (d *claimTest) headers(mac int, ip netip.Addr) *packet.Headers {
	d.t.Helper()
	h, err := packet.Parse(packet.AppendARPRequest(nil, macOf(mac), ip, netip.MustParseAddr("10.0.0.9"), 0))
	if err != nil {
		d.t.Fatal(err)
	}
	return &h
}

func (d *claimTest) claims(mac int, ip netip.Addr, at topology.PortRef) []hosts.Change {
	d.t.Helper()
	return d.Learn(d.headers(mac, ip), at, d.now)
}

// after lets time pass, and returns the kinds of changes that are due then.
func (d *claimTest) after(t time.Duration) (kinds []hosts.Kind) {
	d.now = d.now.Add(t)
	changes, _, _ := d.CheckClaims(d.now)
	for _, c := range changes {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}

// place returns the MAC address and the port of the host that has the victim's address.
func (d *claimTest) place() (openflow.MAC, topology.PortRef) {
	h, _ := d.ByIP(victimIP)
	return h.MAC, h.At
}

// pendingClaim returns the pending claim of a list of changes.
func pendingClaim(t *testing.T, changes []hosts.Change) *hosts.Claim {
	t.Helper()
	for _, c := range changes {
		if c.Kind == hosts.ClaimPending && c.New {
			return c.Claim
		}
	}
	t.Fatalf("no pending claim: %+v", changes)
	return nil
}

// TestHostsAreAskedWhereTheyWere checks that a host which answers at its old place keeps it, by
// its MAC address and by its IP address, and that a host which does not answer is moved.
func TestHostsAreAskedWhereTheyWere(t *testing.T) {
	for name, mac := range map[string]int{"its MAC address elsewhere": 1, "its IP address at another": 2} {
		t.Run(name, func(t *testing.T) {
			d := newClaimTest(t, hosts.Options{})
			x := pendingClaim(t, d.claims(mac, victimIP, other))
			if q := x.Question(); q.Host.MAC != macOf(1) || q.Host.At != home || len(q.Ask) != 1 || q.Ask[0] != victimIP {
				t.Errorf("asked: %+v", q)
			}
			if c := d.claims(mac, victimIP, other); len(c) != 1 || c[0].Kind != hosts.ClaimPending || c[0].New {
				t.Errorf("claimed again: %+v", c)
			}
			if m, at := d.place(); m != macOf(1) || at != home {
				t.Errorf("believed before it was asked: %v at %v", m, at)
			}
			// Late frames from the old place, and answers from elsewhere, are no answers.
			d.claims(1, victimIP, home)
			if c := d.HandleAnswer(d.headers(1, victimIP), other, d.now); len(c) != 0 {
				t.Errorf("an answer from elsewhere: %+v", c)
			}
			if c := d.HandleAnswer(d.headers(1, victimIP), home, d.now); len(c) != 1 || c[0].Kind != hosts.ClaimRefused || c[0].Reason != hosts.Answered || c[0].Claim != x || x.Outcome() != hosts.Rejected {
				t.Errorf("it answers: %+v", c)
			}
			if kinds := d.after(2 * confirm); len(kinds) != 0 {
				t.Errorf("due: %v", kinds)
			}
			if c := d.claims(mac, victimIP, other); len(c) != 1 || c[0].Reason != hosts.Answered {
				t.Errorf("claimed soon after: %+v", c)
			}
			d.now = d.now.Add(2 * confirm)
			pendingClaim(t, d.claims(mac, victimIP, other))
			if kinds := d.after(confirm - 1); len(kinds) != 0 {
				t.Errorf("believed too soon: %v", kinds)
			}
			if kinds := d.after(1); len(kinds) < 2 || kinds[0] != hosts.ClaimAccepted {
				t.Errorf("not believed: %v", kinds)
			}
			if m, at := d.place(); m != macOf(mac) || at != other {
				t.Errorf("its address is at %v, %v", m, at)
			}
		})
	}
}

// TestTimeToAnswerCountsFromTheQuestion checks that the time to answer begins when the question
// has reached the host's switch. A slow switch is given more time, but at most some seconds.
func TestTimeToAnswerCountsFromTheQuestion(t *testing.T) {
	for name, c := range map[string]struct {
		reached         time.Duration // after the claim; zero if never
		still, believed time.Duration // after the claim
	}{
		"slow":  {200 * time.Millisecond, 800*time.Millisecond + confirm - 1, 800*time.Millisecond + confirm},
		"late":  {2 * time.Second, 5*time.Second + confirm - 1, 5*time.Second + confirm},
		"never": {0, 3*time.Second + confirm - 1, 3*time.Second + confirm},
	} {
		t.Run(name, func(t *testing.T) {
			d := newClaimTest(t, hosts.Options{})
			x := pendingClaim(t, d.claims(2, victimIP, other))
			x.MarkSent()
			if kinds := d.after(c.reached); len(kinds) != 0 {
				t.Errorf("believed while the question is under way: %v", kinds)
			}
			if c.reached > 0 {
				x.MarkDelivered(d.now)
			}
			if kinds := d.after(c.still - c.reached); len(kinds) != 0 {
				t.Errorf("believed too soon: %v", kinds)
			}
			if kinds := d.after(c.believed - c.still); len(kinds) < 2 || kinds[0] != hosts.ClaimAccepted {
				t.Errorf("not believed: %v", kinds)
			}
		})
	}
}

// TestWhoCannotBeAskedHasMoved checks that a claim is accepted at once if the host cannot be
// asked: its port is down or leads to a switch now, or no address is known. It also covers
// claims at the same port.
func TestWhoCannotBeAskedHasMoved(t *testing.T) {
	down := false
	d := newClaimTest(t, hosts.Options{Reachable: func(topology.PortRef) bool { return !down }})
	if c := d.claims(2, victimIP, home); len(c) != 2 || c[0].Kind != hosts.Added || c[1].Kind != hosts.Changed {
		t.Errorf("another host of the same port: %+v", c)
	}
	down = true
	if c := d.claims(2, victimIP, other); len(c) != 1 || c[0].Kind != hosts.Moved {
		t.Errorf("its port is down: %+v", c)
	}
	saw(d.Table, macOf(5), 1, 2, d.now)
	down = false
	d.now = d.now.Add(time.Minute)
	if c := saw(d.Table, macOf(5), 1, 3, d.now); len(c) != 1 || c[0].Kind != hosts.Moved {
		t.Errorf("no address is known: %+v", c)
	}
}

// TestPortThatGoesDownWhileAsked checks that a claim ends when the port of the asked host goes
// down.
func TestPortThatGoesDownWhileAsked(t *testing.T) {
	d := newClaimTest(t, hosts.Options{})
	pendingClaim(t, d.claims(1, victimIP, other))
	d.RemovePort(home)
	if kinds := d.after(time.Millisecond); len(kinds) != 2 || kinds[1] != hosts.Added {
		t.Errorf("%v", kinds)
	}
	if m, at := d.place(); m != macOf(1) || at != other {
		t.Errorf("it is %v at %v", m, at)
	}
}

// TestClaimsAreBounded checks the limits of pending claims: for each port, each switch and all.
// Claims that join others count for the port that makes them last.
func TestClaimsAreBounded(t *testing.T) {
	d := newClaimTest(t, hosts.Options{})
	const victims = 6000
	ip := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }
	for i := range victims {
		d.claims(100+i, ip(i), topology.PortRef{Switch: openflow.DatapathID(100 + i%10), Port: uint32(i % 48)})
	}
	d.now = d.now.Add(time.Minute)
	asked := func(at func(i int) topology.PortRef) (n int) {
		for i := range victims {
			for _, c := range d.claims(100+i, ip(i), at(i)) {
				switch {
				case c.Kind == hosts.ClaimPending && c.New:
					n++
				case c.Kind != hosts.ClaimPending && c.Reason != hosts.TooManyClaims:
					t.Fatalf("%+v", c)
				}
			}
		}
		return n
	}
	if n := asked(func(int) topology.PortRef { return other }); n != 128 {
		t.Errorf("%d because of one port", n)
	}
	if n := asked(func(i int) topology.PortRef { return topology.PortRef{Switch: 3, Port: uint32(i % 40)} }); n != 512-128 {
		t.Errorf("%d because of one switch", n)
	}
	if n := asked(func(i int) topology.PortRef {
		return topology.PortRef{Switch: openflow.DatapathID(1000 + i), Port: 1}
	}); n != 4096-512 {
		t.Errorf("%d because of all others", n)
	}
	d.after(confirm)
	if _, _, left := d.CheckClaims(d.now); left {
		t.Error("claims are left")
	}
}

// TestKeptHosts checks that a managed host is where its service says at once, and nowhere else.
func TestKeptHosts(t *testing.T) {
	keep := hosts.Pin{MAC: macOf(1), At: home}
	d := newClaimTest(t, hosts.Options{ManagedAt: func(mac openflow.MAC, ip netip.Addr) (hosts.Pin, bool) {
		return keep, mac == keep.MAC || mac.IsZero() && ip == victimIP
	}})
	for _, mac := range []int{1, 2} {
		for _, c := range d.claims(mac, victimIP, other) {
			if c.Kind != hosts.Added { // the other host is added
				t.Errorf("%d elsewhere: %+v", mac, c)
			}
		}
	}
	keep = hosts.Pin{MAC: macOf(3), At: other} // it has moved and uses another interface
	d.Place(keep.MAC, victimIP, keep.At, d.now)
	if m, at := d.place(); m != keep.MAC || at != other {
		t.Errorf("placed at %v, %v", m, at)
	}
	d.claims(1, victimIP, home) // by its former interface
	if m, at := d.place(); m != keep.MAC || at != other {
		t.Errorf("it is back: %v, %v", m, at)
	}
	keep.At = home
	d.claims(3, victimIP, home)
	if m, at := d.place(); m != keep.MAC || at != home {
		t.Errorf("it had to wait: %v, %v", m, at)
	}
}

// TestHostsOfAnAccessPort checks the limit of a port that has its own.
func TestHostsOfAnAccessPort(t *testing.T) {
	tab := open(hosts.Options{PortLimit: func(at topology.PortRef) int { return map[uint32]int{1: 2}[at.Port] }})
	now := time.Now()
	for i := range 10 {
		saw(tab, macOf(i), 1, 1, now)
		saw(tab, macOf(i), 1, 1, now.Add(2*time.Second))
		saw(tab, macOf(100+i), 1, 2, now)
	}
	if n := tab.Len(); n != 12 {
		t.Errorf("%d hosts, want 2 at the one port and 10 at the other", n)
	}
	if n := tab.Refused()[hosts.Full]; n == 0 {
		t.Error("none was refused")
	}
}
