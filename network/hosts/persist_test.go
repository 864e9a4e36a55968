package hosts_test

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// keeper stores the changes of tables.
type keeper map[openflow.MAC]hosts.Record

func all(openflow.DatapathID) bool { return true }

// keep stores the recorded changes, up to 512 of each switch, and returns their number.
func (k keeper) keep(tab *hosts.Table) int {
	of := map[openflow.DatapathID]int{}
	notes := tab.UnsavedChanges(func(d openflow.DatapathID) bool { of[d]++; return of[d] <= 512 })
	for _, n := range notes {
		if delete(k, n.MAC); !n.Gone {
			k[n.MAC] = n.Record
		}
	}
	tab.MarkSaved(notes)
	return len(notes)
}

func (k keeper) records() []hosts.Record { return slices.Collect(maps.Values(k)) }

func ipOf(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// TestRestoredAsKept checks that stored hosts are the same in the next table.
func TestRestoredAsKept(t *testing.T) {
	d := newClaimTest(t, hosts.Options{TrackChanges: true})
	kept := keeper{}
	d.claims(2, ipOf(2), other)
	d.claims(3, ipOf(3), other)
	kept.keep(d.Table)
	d.claims(2, ipOf(22), other)
	d.now = d.now.Add(2 * time.Second)
	d.claims(1, victimIP, home) // seen again: it is not evicted from now on
	d.RemovePort(home)
	d.claims(1, victimIP, home)
	d.now = d.now.Add(2 * time.Second)
	d.claims(3, ipOf(3), other)
	if n := kept.keep(d.Table); n != 3 {
		t.Errorf("%d notes, want one for each of three hosts", n)
	}
	if n := d.UnsavedCount(); n != 0 || len(d.UnsavedChanges(all)) != 0 {
		t.Errorf("%d are left to be kept", n)
	}
	next := open(hosts.Options{TrackChanges: true})
	next.Restore(kept.records(), d.now)
	if got, want := next.All(), d.All(); !reflect.DeepEqual(unseen(got), unseen(want)) {
		t.Errorf("restored\n%v\nwant\n%v", got, want)
	}
	if n := next.UnsavedCount(); n != 0 {
		t.Errorf("%d of what was restored are to be kept again", n)
	}
	if kept[macOf(2)].Again || !kept[macOf(3)].Again {
		t.Errorf("seen again: %+v", kept)
	}
	next.RemoveSwitch(other.Switch)
	kept.keep(next)
	if len(kept) != 1 || kept[macOf(1)].At != home {
		t.Errorf("kept after the others have gone: %+v", kept)
	}
}

// unseen returns hosts without the times at which they were seen.
func unseen(known []topology.Host) []topology.Host {
	for i := range known {
		known[i].Seen = time.Time{}
	}
	return known
}

// TestClaimsWaitForTheSwitch checks that claims about a host wait while its switch has not
// connected since the start, has left, or has only just connected; then the host is asked. After
// a limited time the claims are accepted.
func TestClaimsWaitForTheSwitch(t *testing.T) {
	const grace = hosts.DefaultGrace
	for name, c := range map[string]struct {
		await func(d *claimTest)
		waits time.Duration
	}{
		"not seen since the start": {func(*claimTest) {}, 3 * grace},
		"left":                     {func(d *claimTest) { d.SwitchUp(1, d.now); d.SwitchDown(1, d.now) }, grace},
		"came":                     {func(d *claimTest) { d.SwitchUp(1, d.now) }, grace},
	} {
		for who, mac := range map[string]int{"its MAC address": 1, "its IP address": 2} {
			t.Run(name+", "+who, func(t *testing.T) {
				there := false
				first := newClaimTest(t, hosts.Options{TrackChanges: true})
				kept := keeper{}
				kept.keep(first.Table)
				fresh := func() *claimTest {
					there = false
					d := &claimTest{Table: open(hosts.Options{Confirm: confirm, Reachable: func(topology.PortRef) bool { return there }}), t: t, now: first.now}
					d.Restore(kept.records(), d.now)
					c.await(d)
					return d
				}
				claim := func(d *claimTest) *hosts.Claim {
					t.Helper()
					changes := d.claims(mac, victimIP, other)
					i := slices.IndexFunc(changes, func(c hosts.Change) bool { return c.Kind == hosts.ClaimPending })
					if i < 0 || changes[i].New || !changes[i].Claim.Waiting() {
						t.Fatalf("claimed: %+v", changes)
					}
					return changes[i].Claim
				}

				d := fresh()
				claim(d)
				if kinds := d.after(c.waits - 1); len(kinds) != 0 {
					t.Errorf("it was not waited for: %v", kinds)
				}
				if kinds := d.after(1); len(kinds) < 2 || kinds[0] != hosts.ClaimAccepted {
					t.Errorf("it is still waited for: %v", kinds)
				}
				if m, at := d.place(); m != macOf(mac) || at != other {
					t.Errorf("believed that it is %v at %v", m, at)
				}

				for _, answers := range []bool{true, false} {
					d := fresh()
					x := claim(d)
					d.after(c.waits / 2)
					there = true
					changes, _, left := d.CheckClaims(d.now)
					if len(changes) != 1 || changes[0].Kind != hosts.ClaimPending || !changes[0].New || changes[0].Claim != x || x.Waiting() || !left {
						t.Fatalf("its switch is there: %+v", changes)
					}
					want, place := macOf(1), home
					if answers {
						if c := d.HandleAnswer(d.headers(1, victimIP), home, d.now); len(c) != 1 || c[0].Reason != hosts.Answered {
							t.Errorf("it answers: %+v", c)
						}
					} else {
						if kinds := d.after(confirm - 1); len(kinds) != 0 {
							t.Errorf("believed too soon: %v", kinds)
						}
						if kinds := d.after(1); len(kinds) < 2 || kinds[0] != hosts.ClaimAccepted {
							t.Errorf("not believed: %v", kinds)
						}
						want, place = macOf(mac), other
					}
					if m, at := d.place(); m != want || at != place {
						t.Errorf("answered %v, and is %v at %v", answers, m, at)
					}
				}
			})
		}
	}
}

// TestSwitchThatLeavesWhileItsHostIsAsked checks that a claim waits for a switch that leaves
// while its host is being asked, and that the host is asked again.
func TestSwitchThatLeavesWhileItsHostIsAsked(t *testing.T) {
	there := true
	d := newClaimTest(t, hosts.Options{Reachable: func(topology.PortRef) bool { return there }})
	x := pendingClaim(t, d.claims(2, victimIP, other))
	there = false
	d.SwitchDown(1, d.now)
	if kinds := d.after(hosts.DefaultGrace - 1); len(kinds) != 0 || !x.Waiting() {
		t.Errorf("it was not waited for: %v", kinds)
	}
	there = true
	if kinds := d.after(0); len(kinds) != 1 || kinds[0] != hosts.ClaimPending {
		t.Errorf("it was not asked again: %v", kinds)
	}
	if c := d.HandleAnswer(d.headers(1, victimIP), home, d.now); len(c) != 1 || c[0].Reason != hosts.Answered {
		t.Errorf("it answers: %+v", c)
	}
}

// TestFlappingSwitchIsNotWaitedForLong checks that claims about hosts of a switch that comes and
// goes are accepted after a limited time.
func TestFlappingSwitchIsNotWaitedForLong(t *testing.T) {
	d := newClaimTest(t, hosts.Options{Reachable: func(topology.PortRef) bool { return false }})
	d.SwitchDown(1, d.now)
	d.claims(1, victimIP, other)
	for range 3 {
		if kinds := d.after(hosts.DefaultGrace - time.Millisecond); len(kinds) != 0 {
			t.Errorf("believed too soon: %v", kinds)
		}
		d.SwitchUp(1, d.now)
		d.SwitchDown(1, d.now)
	}
	if kinds := d.after(3 * time.Millisecond); len(kinds) < 2 || kinds[0] != hosts.ClaimAccepted {
		t.Errorf("not believed: %v", kinds)
	}
}

// TestRestoredHostsHaveTheirShare checks that limits hold for restored hosts: hosts seen again
// come first, then older ones. Records that contradict pinned hosts, or are impossible, are
// ignored.
func TestRestoredHostsHaveTheirShare(t *testing.T) {
	now := time.Now()
	record := func(i int, d openflow.DatapathID, port uint32, again bool, age time.Duration) hosts.Record {
		return hosts.Record{MAC: macOf(i), At: topology.PortRef{Switch: d, Port: port}, IPs: []netip.Addr{ipOf(i)}, Again: again, Seen: now.Add(-age)}
	}
	var records []hosts.Record
	for i := range 20 { // one port has made up many
		records = append(records, record(100+i, 1, 1, false, time.Minute))
	}
	records = append(records, record(1, 1, 1, true, time.Second), record(2, 1, 1, false, time.Hour), record(3, 1, 2, false, time.Second),
		record(4, 2, 1, false, time.Second), record(5, 2, 1, true, time.Second), record(6, 2, 2, true, time.Second),
		hosts.Record{MAC: openflow.MAC{1}, At: home}, hosts.Record{At: home})
	tab := open(hosts.Options{
		TrackChanges: true, MaxPerPort: 3, MaxPerSwitch: 4,
		Pinned: map[netip.Addr]hosts.Pin{ipOf(4): {MAC: macOf(9), At: home}, ipOf(60): {MAC: macOf(6), At: home}},
	})
	tab.Restore(records, now)
	for i, there := range map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: false} {
		if _, ok := tab.Lookup(macOf(i), 0); ok != there {
			t.Errorf("host %d is there: %v, want %v", i, ok, there)
		}
	}
	if n := tab.Len(); n != 6 {
		t.Errorf("%d hosts, want 6", n)
	}
	if h, ok := tab.ByIP(ipOf(4)); ok {
		t.Errorf("a pinned address is %v's", h.MAC)
	}
	gone := 0
	for _, n := range tab.UnsavedChanges(all) {
		if n.Gone {
			gone++
		}
	}
	if gone != len(records)-6 {
		t.Errorf("%d are to be forgotten, want the %d that are not there", gone, len(records)-6)
	}
	// A new host finds the limits reached, or a host that was seen only once is evicted.
	if c := saw(tab, macOf(200), 1, 1, now); len(c) != 2 || c[1].Kind != hosts.Removed || c[1].Host.MAC == macOf(1) {
		t.Errorf("one more behind the port: %+v", c)
	}
}

// TestRestoredHostsGo checks that restored hosts are removed if their switch does not connect,
// or if they are not seen for long.
func TestRestoredHostsGo(t *testing.T) {
	now := time.Now()
	tab := open(hosts.Options{})
	tab.Restore([]hosts.Record{
		{MAC: macOf(1), At: home, Seen: now.Add(-3 * time.Hour)}, {MAC: macOf(2), At: other, Seen: now.Add(time.Hour)}, {MAC: macOf(3), At: other, Seen: now},
	}, now)
	tab.SwitchUp(other.Switch, now)
	tab.Expire(now.Add(30 * time.Second))
	if tab.Len() != 3 {
		t.Errorf("%d hosts half a minute after the start", tab.Len())
	}
	if gone := tab.Expire(now.Add(2 * time.Minute)); len(gone) != 1 || gone[0].Host.MAC != macOf(1) {
		t.Errorf("two minutes after the start: %+v", gone)
	}
	saw(tab, macOf(3), other.Switch, other.Port, now.Add(30*time.Minute))
	if gone := tab.Expire(now.Add(hosts.DefaultAge + time.Second)); len(gone) != 1 || gone[0].Host.MAC != macOf(2) {
		t.Errorf("after an hour: %+v", gone)
	}
}

// TestNotesAreShared checks that a switch with more changes than can be stored does not delay
// others, and that the recorded changes are bounded even if nothing can be stored.
func TestNotesAreShared(t *testing.T) {
	tab := open(hosts.Options{TrackChanges: true})
	kept := keeper{}
	now := time.Now()
	for i := range 3 * hosts.DefaultMaxPerSwitch { // one switch invents hosts
		saw(tab, macOf(i), 1, uint32(i%48), now)
		if i%5000 == 0 {
			kept.keep(tab)
		}
	}
	saw(tab, macOf(1_000_000), 2, 1, now)
	before, limit := tab.UnsavedCount(), tab.Len()+len(kept)
	if n := kept.keep(tab); n != 513 || tab.UnsavedCount() != before-n {
		t.Errorf("%d notes at once, %d left of %d", n, tab.UnsavedCount(), before)
	}
	if _, ok := kept[macOf(1_000_000)]; !ok {
		t.Error("a host elsewhere was not kept")
	}
	if before > limit {
		t.Errorf("%d changes are noted, want no more than %d", before, limit)
	}
	for kept.keep(tab) > 0 {
	}
	if len(kept) != tab.Len() {
		t.Errorf("%d are kept of %d", len(kept), tab.Len())
	}
}

// TestHostThatGoesWhileItIsKept checks that a host which leaves while it is being stored is
// removed from the store later.
func TestHostThatGoesWhileItIsKept(t *testing.T) {
	tab := open(hosts.Options{TrackChanges: true})
	saw(tab, macOf(1), 1, 1, time.Now())
	notes := tab.UnsavedChanges(all)
	tab.RemovePort(home)
	tab.MarkSaved(notes)
	if notes = tab.UnsavedChanges(all); len(notes) != 1 || !notes[0].Gone || notes[0].MAC != macOf(1) {
		t.Errorf("%+v", notes)
	}
}
