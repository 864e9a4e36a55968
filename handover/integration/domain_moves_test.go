package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
)

// TestDomainsProactive moves a device with two interfaces between two operators,
// announced, under a download and a stream of 1,000 packets a second: nothing is
// lost, and afterwards nothing is left in the domain that it has visited.
func TestDomainsProactive(t *testing.T) {
	const trips = 10
	const every = 400 * time.Millisecond
	a, b := newOperators(t, lab.MobilityOptions{})
	a.steadfast = true
	d := a.device(selfbuild.Binary(t), "dev1", "seamless", 2)
	host := a.lab.Host("dev1")
	places := []struct {
		from, to *operator
		local    string
		eth      string
		n        int
	}{{a, b, "dev1", "eth1", 1}, {b, a, "dev1@a", "eth0", 0}}
	tcp := a.download("dev1", 50, 4+int(2*trips*every/time.Second))
	s := d.stream(1000)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var longest time.Duration
	var moments []moment
	for range trips {
		for _, p := range places {
			<-tick.C
			began := time.Now()
			p.from.announce(p.local, a.port("dev1-"+p.eth), hostMAC(host, p.n))
			prepared := time.Since(began)
			m, err := d.move(p.eth)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			longest = max(longest, took)
			moments = append(moments, moment{"the notice to " + p.to.name, began}, moment{"both branches to " + p.to.name, began.Add(prepared)}, moment{"the move to " + p.to.name, began.Add(took)})
			settled(a, p.to, "dev1")
			t.Logf("to %s: both branches after %v, moved after %v, of which DHCP %v", p.to.name, prepared.Round(time.Microsecond), took.Round(time.Microsecond), m.Lease.Round(time.Microsecond))
		}
	}
	r, g := s.stop(), tcp.wait(40*time.Second)
	t.Logf("%d moves between domains, the longest took %v: TCP %v; UDP %v", 2*trips, longest.Round(time.Millisecond), g, r)
	for _, x := range r.gaps {
		t.Logf("a gap of %d packets, the first sent %v", x.packets, nearest(moments, s.sent[x.first]))
	}
	for _, at := range r.again {
		t.Logf("a packet came again %v", nearest(moments, at))
	}
	requireOnce(t, r)
	if g.err != "" {
		t.Errorf("the download was broken off: %s", g.err)
	}
	if left := b.rulesFor(d.ip); len(left) > 0 {
		t.Errorf("the visited domain still has %v", left)
	}
	if l, ok := b.lease("dev1@a"); ok {
		t.Errorf("the visited domain still has %+v", l)
	}
}

// moment is when something happened.
type moment struct {
	what string
	at   time.Time
}

// nearest says what happened last before a time.
func nearest(moments []moment, at time.Time) string {
	last := "before all"
	for _, m := range moments {
		if !m.at.After(at) {
			last = fmt.Sprintf("%v after %s", at.Sub(m.at).Round(100*time.Microsecond), m.what)
		}
	}
	return last
}

// TestDomainsReactive moves the device unannounced: the domain it turns up in asks
// its neighbour. The gap is printed. With two interfaces the device keeps its old
// place until the new one answers, and loses nothing either.
func TestDomainsReactive(t *testing.T) {
	a, b := newOperators(t, lab.MobilityOptions{})
	a.steadfast = true
	d := a.device(selfbuild.Binary(t), "dev1", "seamless", 2)
	s := d.stream(1000)
	for _, p := range []struct {
		to  *operator
		eth string
	}{{b, "eth1"}, {a, "eth0"}, {b, "eth1"}} {
		came := s.count()
		a.eventually("packets come", func() bool { return s.count() > came+300 })
		began := time.Now()
		if _, err := d.move(p.eth); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		settled(a, p.to, "dev1")
		t.Logf("to %s, unannounced: %v", p.to.name, took.Round(time.Microsecond))
	}
	r := s.stop()
	t.Logf("three moves, unannounced: %v", r)
	if len(r.gaps) > 3 || r.longest > time.Second {
		t.Errorf("the longest gap is %v, of %d", r.longest, len(r.gaps))
	}
}

// TestDomainsHorizontal is the same with one interface whose cable goes from one
// operator's edge to the other's: what is lost is what was sent while there was
// no link, or no word of it.
func TestDomainsHorizontal(t *testing.T) {
	a, b := newOperators(t, lab.MobilityOptions{Interfaces: 1})
	d := a.device(selfbuild.Binary(t), "dev1", "seamless", 1)
	s := d.stream(1000)
	for _, p := range []struct {
		to   *operator
		edge string
	}{{b, b.domain.Edges[0]}, {a, a.domain.Edges[1]}} {
		came := s.count()
		began := time.Now()
		if err := a.lab.MoveLink(t.Context(), "dev1-eth0", p.edge); err != nil {
			t.Fatal(err)
		}
		linked := time.Since(began)
		a.eventually("packets come to "+p.edge, func() bool { return s.count() > came+500 })
		settled(a, p.to, "dev1")
		t.Logf("to %s: the cable was moved within %v", p.edge, linked.Round(time.Millisecond))
	}
	r := s.stop()
	t.Logf("one interface, unannounced, between domains: %v", r)
	if r.doubled > 0 {
		t.Errorf("%d packets came twice", r.doubled)
	}
}
