package domain

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
)

// second returns another edge port of the domain.
func (d *testDomain) second() Heading {
	return Heading{At: &network.PortRef{Switch: d.edge().Switch, Port: 2}}
}

// A visitor that signs moves within the domain that it visits: its home confirms each move, and no
// other host is taken for it.
func TestVisitorMovesInside(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, everybody)
	a, b, c := ds[0], ds[1], ds[2]
	_, id := a.device(1, nil)
	move(t, ds, a, a, b, id)
	move(t, ds, a, b, c, id) // its home is two domains away
	known, _ := a.host.Device(id)
	want, mac := known.IP, known.MACs[0]
	for name, e := range map[string]*Evidence{"nothing": nil, "a wrong key": sign(mac, "guess")} {
		if _, err := c.dhcpAt(c.second(), mac, e, 300*time.Millisecond); err == nil {
			t.Errorf("%s moves the visitor", name)
		}
	}
	if k, _ := c.host.Device(id + "@a"); k.Place.At != *c.edge() {
		t.Fatalf("it is at %+v", k.Place)
	}
	// At its place it needs no proof, and the stranger has not locked it out elsewhere.
	ip, err := c.dhcp(mac, nil, waitLimit)
	wantAddress(t, ip, err, want)
	third := c.second()
	third.At.Port = 3
	e := sign(mac, "secret")
	ip, err = c.dhcpAt(third, mac, e, waitLimit)
	wantAddress(t, ip, err, want)
	// Evidence for one place is not valid for another.
	if _, err := c.dhcpAt(at(c), mac, e, 300*time.Millisecond); err == nil {
		t.Error("a request that was used moves the visitor")
	}
	settles(t, ds, a, id, "c")
}

// Without its home's confirmation a visitor stays where it is; it may move on when the home is
// back.
func TestVisitorMovesWhileItsHomeIsDown(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	move(t, ds, a, a, b, id)
	a.setFate(func(Kind, string) fate { return lost })
	if _, err := b.dhcpAt(b.second(), mac, sign(mac, "secret"), 300*time.Millisecond); err == nil {
		t.Error("it moves without its home's word")
	}
	a.setFate(nil)
	eventually(t, "it moves", func() bool {
		ip, err := b.dhcpAt(b.second(), mac, sign(mac, "secret"), 300*time.Millisecond)
		return err == nil && ip == a.addressOf(id)
	})
	settles(t, ds, a, id, "b")
}

// A host with the hardware address of an announced device, but without its key, gets none of its
// packets, and does not keep it from coming.
func TestAnnouncedDeviceHasToShowItself(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	announce(t, a, b, id)
	for _, e := range []*Evidence{nil, sign(mac, "guess")} {
		if _, err := b.dhcpAt(b.second(), mac, e, 300*time.Millisecond); err == nil {
			t.Error("a stranger is taken for the device")
		}
	}
	if k, _ := b.host.Device(id + "@a"); k.Here {
		t.Fatalf("it is taken to be here: %+v", k)
	}
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "b")
	chainIs(t, ds, a, id, "a", "b")
}

// A device whose completion the origin cannot handle delays no other.
func TestOneThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	timing := quick
	timing.Retry, timing.RetryMax = time.Minute, time.Minute
	ds := newDomains(t, 2, timing, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	announce(t, a, b, id)
	other, otherID := a.device(2, nil)
	announce(t, a, b, otherID)
	a.host.setFail("redirect", ErrMoving)
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	eventually(t, "the completion has failed", func() bool { return a.sawEvent("code:failed") })
	a.host.setFail("redirect", nil)
	ip, err = b.dhcp(other, sign(other, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(otherID))
	settles(t, ds, a, otherID, "b")
}

// A visitor leaves, of which its home is not told, and comes again.
func TestLeavesUnheardAndComesAgain(t *testing.T) {
	t.Parallel()
	timing := quick
	timing.Retry, timing.RetryMax = time.Minute, time.Minute
	ds := newDomains(t, 2, timing, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	move(t, ds, a, a, b, id)
	a.setFate(once(KindWithdraw, lost))
	b.service().Receiver.Left(id + "@a")
	eventually(t, "the word has been lost", func() bool {
		r, ok := b.service().Record(id + "@a")
		return ok && r.Gone && b.service().Neighbours()[0].Fault != ""
	})
	// Its home assigns addresses to it again as soon as it knows that it is back.
	eventually(t, "it is served again", func() bool {
		ip, err := b.dhcp(mac, sign(mac, "secret"), 300*time.Millisecond)
		return err == nil && ip == a.addressOf(id)
	})
	settles(t, ds, a, id, "b")
}

// homeAgain returns a device of the first of two domains that has visited the second and has just
// come home.
func homeAgain(t *testing.T) (ds []*testDomain, id string, known Known) {
	t.Helper()
	ds = newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	_, id = a.device(1, nil)
	move(t, ds, a, a, b, id)
	known, _ = a.host.Device(id)
	announce(t, b, a, id+"@a")
	ip, err := a.dhcp(known.MACs[0], sign(known.MACs[0], "secret"), waitLimit)
	wantAddress(t, ip, err, known.IP)
	return ds, id, known
}

// A visitor goes home, and at once back to the domain that it has left, before that domain has
// been told: to its previous place, or to another port.
func TestHomeAndBackBeforeTheCompletion(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]func(*testDomain) Heading{"the same port": at, "another port": (*testDomain).second} {
		t.Run(name, func(t *testing.T) {
			ds, id, known := homeAgain(t)
			a, b, mac := ds[0], ds[1], known.MACs[0]
			ip, err := b.dhcpAt(where(b), mac, sign(mac, "secret"), waitLimit)
			wantAddress(t, ip, err, known.IP)
			eventually(t, "its packets come out there", func() bool { return slices.Equal(reach(ds, a, id), []string{"b"}) })
			chainIs(t, ds, a, id, "a", "b")
		})
	}
}

// A domain that a device of ours has left claims falsely that the device is there again: without
// evidence of the device it gets nothing.
func TestLyingAboutComingBack(t *testing.T) {
	t.Parallel()
	ds, id, known := homeAgain(t)
	a, b := ds[0], ds[1]
	b.service().Receiver.Attached(id+"@a", sign(known.MACs[0], "guess"))
	eventually(t, "a has heard the lie", func() bool { return a.sawEvent("no-evidence") })
	if got := reach(ds, a, id); !slices.Equal(got, []string{"a"}) {
		t.Errorf("packets come out in %v", got)
	}
}
