package domain

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// waitLimit bounds every wait of these tests.
const waitLimit = 60 * time.Second

func at(d *testDomain) Heading { return Heading{At: d.edge()} }

func announce(t testing.TB, from, to *testDomain, local string) {
	t.Helper()
	if err := from.service().Origin.Announce(t.Context(), local, to.name, at(to)); err != nil {
		t.Fatal(err)
	}
}

func wantAddress(t testing.TB, got netip.Addr, err error, want netip.Addr) {
	t.Helper()
	if err != nil || got != want {
		t.Fatalf("address %v, %v; want %v", got, err, want)
	}
}

func (d *testDomain) addressOf(id string) netip.Addr {
	k, _ := d.host.Device(id)
	return k.IP
}

// The six steps, with a check of where packets go after each.
func TestProactive(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)

	announce(t, a, b, id)
	if got := reach(ds, a, id); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("after the notice packets come out in %v", got)
	}
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	if got := reach(ds, a, id); !slices.Contains(got, "b") {
		t.Fatalf("before the completion packets come out in %v", got)
	}
	settles(t, ds, a, id, "b")
	chainIs(t, ds, a, id, "a", "b")
	if k, _ := a.host.Device(id); k.Here {
		t.Error("the origin still takes it to be there")
	}
}

// Until the origin sends packets to the branch, DHCP stays unanswered.
func TestDHCPWaitsForBothBranches(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	blocked, arrived := make(chan struct{}), make(chan struct{})
	b.setDelay(func(k Kind) time.Duration {
		if k == KindReady {
			close(arrived)
			<-blocked
		}
		return 0
	})
	done := make(chan error, 1)
	go func() { done <- a.service().Origin.Announce(context.Background(), id, "b", at(b)) }()
	<-arrived
	if got := b.service().Receiver.Admit(mac, at(b), nil); got != Wait {
		t.Errorf("before the origin is ready: %v", got)
	}
	close(blocked)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "b")
}

func TestSavingBranchesLate(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, func(d *fakeDevice) { d.Policy = "saving" })
	announce(t, a, b, id)
	if got := reach(ds, a, id); !slices.Equal(got, []string{"a"}) {
		t.Errorf("a device of saving policy is sent to %v", got)
	}
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "b")
}

// move makes one announced move, with the device's request at the end.
func move(t testing.TB, ds []*testDomain, home, from, to *testDomain, id string) {
	t.Helper()
	local := Visitor{Home: home.name, Device: id}.LocalID(from.name)
	announce(t, from, to, local)
	if got := reach(ds, home, id); !slices.Contains(got, from.name) || !slices.Contains(got, to.name) {
		t.Fatalf("%s to %s: prepared, packets come out in %v", from.name, to.name, got)
	}
	k, _ := from.host.Device(local)
	mac := k.MACs[0]
	ip, err := to.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, k.IP)
	settles(t, ds, home, id, to.name)
}

// chainIs waits until the chain of a device is as wanted, from its home on.
func chainIs(t testing.TB, ds []*testDomain, home *testDomain, id string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the chain is %v", want), func() bool {
		for _, d := range ds {
			if !chainAt(d, home, id, want) {
				return false
			}
		}
		return true
	})
}

func chainAt(d, home *testDomain, id string, want []string) bool {
	local := Visitor{Home: home.name, Device: id}.LocalID(d.name)
	r, ok := d.service().Record(local)
	i := slices.Index(want, d.name)
	if i < 0 || len(want) == 1 {
		_, there := d.host.Device(local)
		return !ok && (!there || d == home)
	}
	up, down := "", ""
	if i > 0 {
		up = want[i-1]
	}
	if i+1 < len(want) {
		down = want[i+1]
	}
	return r.Upstream == up && r.Downstream == down && r.Host == want[len(want)-1]
}

func TestThereAndBack(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	_, id := a.device(1, nil)
	for range 3 {
		move(t, ds, a, a, b, id)
		chainIs(t, ds, a, id, "a", "b")
		move(t, ds, a, b, a, id)
		chainIs(t, ds, a, id, "a")
	}
}

func TestChains(t *testing.T) {
	t.Parallel()
	line := func(i, j int) bool { return i-j == 1 || j-i == 1 }
	for _, c := range []struct {
		name string
		near func(i, j int) bool
		way  string // domains that the device visits
		want []string
	}{
		{"a b c in a line", line, "abc", []string{"a", "b", "c"}},
		{"a b c, all neighbours", everybody, "abc", []string{"a", "b", "c"}},
		{"back in the middle", line, "abcb", []string{"a", "b"}},
		{"home the way it came", line, "abcba", []string{"a"}},
		{"home by a short cut", everybody, "abca", []string{"a"}},
		{"round and on", everybody, "abcab", []string{"a", "b"}},
		{"round the other way", everybody, "abcacb", []string{"a", "c", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ds := newDomains(t, 3, quick, c.near)
			_, id := ds[0].device(1, nil)
			for i := 1; i < len(c.way); i++ {
				move(t, ds, ds[0], ds[c.way[i-1]-'a'], ds[c.way[i]-'a'], id)
			}
			chainIs(t, ds, ds[0], id, c.want...)
		})
	}
}

func TestReactive(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, everybody)
	a, c := ds[0], ds[2]
	mac, id := a.device(1, nil)
	ip, err := c.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "c")
	chainIs(t, ds, a, id, "a", "c")
	// And on, from a domain that is not its home and has to ask the home.
	ip, err = ds[1].dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "b")
	// Home unannounced: nobody needs to be asked.
	ip, err = a.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "a")
	chainIs(t, ds, a, id, "a")
}

// A device that passes through a domain appears there unannounced: its home has to confirm it.
func TestReturnToTheMiddleUnannounced(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, everybody)
	a, b, c := ds[0], ds[1], ds[2]
	mac, id := a.device(1, nil)
	move(t, ds, a, a, b, id)
	move(t, ds, a, b, c, id)
	before := reach(ds, a, id)
	if _, err := b.dhcp(mac, sign(mac, "wrong"), 300*time.Millisecond); err == nil {
		t.Error("a request with a wrong key was served")
	}
	if got := reach(ds, a, id); !slices.Equal(got, before) {
		t.Errorf("a request with a wrong key changed %v to %v", before, got)
	}
	eventually(t, "it may be asked about again", func() bool {
		b.service().Receiver.mu.Lock()
		defer b.service().Receiver.mu.Unlock()
		return len(b.service().Receiver.notFound) == 0
	})
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "b")
	chainIs(t, ds, a, id, "a", "b")
}

func TestLeavingAVisit(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, func(i, j int) bool { return i-j == 1 || j-i == 1 })
	a, b, c := ds[0], ds[1], ds[2]
	_, id := a.device(1, nil)
	move(t, ds, a, a, b, id)
	move(t, ds, a, b, c, id)
	c.service().Receiver.Left(id + "@a")
	eventually(t, "everybody has forgotten it", func() bool {
		return len(a.service().records.roaming())+len(b.service().records.roaming())+len(c.service().records.roaming()) == 0
	})
	if got := reach(ds, a, id); len(got) != 0 {
		t.Errorf("packets of a device that has left come out in %v", got)
	}
	if _, known := b.host.Device(id + "@a"); known {
		t.Error("the middle still knows the visitor")
	}
}

func TestAnnouncedElsewhereAfterAll(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 3, quick, everybody)
	a, b, c := ds[0], ds[1], ds[2]
	mac, id := a.device(1, nil)
	announce(t, a, b, id)
	announce(t, a, c, id)
	eventually(t, "the first neighbour has forgotten it", func() bool {
		_, known := b.host.Device(id + "@a")
		return !known
	})
	if got := reach(ds, a, id); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("packets come out in %v", got)
	}
	ip, err := c.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	settles(t, ds, a, id, "c")
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	_, id := a.device(1, nil)
	announce(t, a, b, id)
	if err := a.service().Origin.Abandon(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	settles(t, ds, a, id, "a")
	chainIs(t, ds, a, id, "a")
	if err := a.service().Origin.Abandon(t.Context(), id); !errors.Is(err, ErrNoDevice) {
		t.Errorf("abandoned twice: %v", err)
	}
}

// The device attaches in b and at once at home again, before b's completion arrives.
func TestBackBeforeTheCompletion(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	mac, id := a.device(1, nil)
	announce(t, a, b, id)
	a.setFate(func(k Kind, _ string) fate {
		if k == KindComplete {
			return lost
		}
		return goesThrough
	})
	ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	ip, err = a.dhcp(mac, sign(mac, "secret"), waitLimit)
	wantAddress(t, ip, err, a.addressOf(id))
	eventually(t, "home knows that it is back", func() bool {
		r, ok := a.service().Record(id)
		return ok && r.Move != nil && !r.Move.Back.IsZero()
	})
	a.setFate(nil)
	eventually(t, "b has let it go", func() bool {
		_, known := b.host.Device(id + "@a")
		return !known
	})
	if got := reach(ds, a, id); !slices.Contains(got, "a") {
		t.Errorf("packets come out in %v", got)
	}
}

func TestAnnounceRefusals(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	_, id := a.device(1, nil)
	for _, c := range []struct {
		name, id, peer string
		h              Heading
		want           error
	}{
		{"unknown neighbour", id, "z", Heading{}, ErrNoNeighbour},
		{"unknown device", "nobody", "b", Heading{}, ErrNoDevice},
	} {
		if err := a.service().Origin.Announce(t.Context(), c.id, c.peer, c.h); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	lat := 1.0
	if err := a.service().Origin.Announce(t.Context(), id, "b", Heading{Motion: &Motion{Lat: &lat}}); err == nil {
		t.Error("half a position was announced")
	}
	move(t, ds, a, a, b, id)
	if err := a.service().Origin.Announce(t.Context(), id, "b", Heading{}); !errors.Is(err, ErrNotHere) {
		t.Errorf("announcing a device that is abroad: %v", err)
	}
}

func TestManyDevicesAtOnce(t *testing.T) {
	t.Parallel()
	ds := newDomains(t, 2, quick, everybody)
	a, b := ds[0], ds[1]
	const count = 20
	errs := make(chan error, count)
	for n := range count {
		mac, id := a.device(n+1, nil)
		go func() {
			errs <- func() error {
				if err := a.service().Origin.Announce(context.Background(), id, "b", at(b)); err != nil {
					return err
				}
				ip, err := b.dhcp(mac, sign(mac, "secret"), waitLimit)
				if err == nil && ip != a.addressOf(id) {
					err = fmt.Errorf("%s got %v", id, ip)
				}
				return err
			}()
		}()
	}
	for range count {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for n := range count {
		settles(t, ds, a, fmt.Sprintf("car-%d", n+1), "b")
	}
}
