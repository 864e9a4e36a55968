package sos

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// division is a sharing without a network, for two switches and a link between them.
type division struct {
	t *testing.T
	*sharing
	now time.Time
	x   [3]*agent
}

var wanLink = direction{at(1, wan), at(2, wan)}

func newDivision(t *testing.T, capacity uint64) *division {
	list := links([2]network.PortRef{wanLink.from, wanLink.to})
	for i := range list {
		list[i].Capacity, list[i].Declared = capacity, capacity > 0
	}
	c := &core{net: newFakeNet(topology.New(1, []openflow.DatapathID{1, 2}, list))}
	d := &division{t: t, sharing: newSharing(c, nil, nil), now: time.Now()}
	for i := range d.x {
		d.x[i] = &agent{}
		d.x[i].Name = string(rune('a' + i))
	}
	return d
}

// key returns what agent i sends.
func (d *division) key(i int) senderKey {
	return senderKey{d.x[i], netip.AddrPortFrom(agentY.Addr(), 7001)}
}

// round makes the given agents send on links, and returns the limits of each agent.
func (d *division) round(after time.Duration, active map[int][]direction) (limits [3]agentapi.Limit) {
	d.now = d.now.Add(after)
	all := map[senderKey][]direction{}
	for i, l := range active {
		all[d.key(i)] = l
	}
	d.update(all, d.now)
	for a, l := range d.limits(d.now) {
		for i := range d.x {
			if d.x[i] == a && len(l) == 1 {
				limits[i] = l[0]
			}
		}
	}
	return limits
}

// report stores what an agent reports.
func (d *division) report(i int, s agentapi.PathStatus) { d.senders[d.key(i)].status = &s }

func (d *division) wantPaces(what string, limits [3]agentapi.Limit, mbit ...float64) {
	d.t.Helper()
	for i, want := range mbit {
		if got := float64(limits[i].Pace) / 1e6; math.Abs(got-want) > 0.01*want {
			d.t.Errorf("%s: agent %d may send %.1f Mbit/s, want %.1f", what, i, got, want)
		}
	}
}

// TestDivisionOfDeclared checks that a link of declared capacity is divided equally among those that
// need it, and that a limit goes with the others' sessions.
func TestDivisionOfDeclared(t *testing.T) {
	const capacity, most = 300e6, 300 * agentapi.PayloadShare
	d := newDivision(t, capacity)
	both := map[int][]direction{0: {wanLink}, 1: {wanLink}}
	d.wantPaces("alone", d.round(0, map[int][]direction{0: {wanLink}}), 0, 0)
	l := d.round(time.Second, both)
	d.wantPaces("two begin", l, most/2, most/2)
	if rate := float64(l[1].Rate); math.Abs(rate-most*1e6) > 1 {
		t.Errorf("the path is said to carry %.0f, want %.0f", rate, most*1e6)
	}
	d.report(0, agentapi.PathStatus{Sessions: 2, Delivered: 140e6})
	d.report(1, agentapi.PathStatus{Delivered: 8e6})
	d.wantPaces("the second has just begun", d.round(time.Second, both), most/2, most/2)
	d.report(0, agentapi.PathStatus{Sessions: 2, Delivered: 140e6})
	d.report(1, agentapi.PathStatus{Delivered: 8e6})
	d.wantPaces("the second sends little", d.round(2*time.Second, both), most-10, most/2)
	d.report(0, agentapi.PathStatus{Sessions: 2, Delivered: 270e6})
	d.report(1, agentapi.PathStatus{Sessions: 1, Delivered: 80e6})
	d.wantPaces("the second needs more", d.round(time.Second, both), most/2, most/2)
	d.report(0, agentapi.PathStatus{Sessions: 2, Delivered: 140e6})
	d.report(1, agentapi.PathStatus{Sessions: 1, Delivered: 30e6})
	d.wantPaces("something else holds the second back", d.round(time.Second, both), most-60, most/2)
	d.wantPaces("a third comes", d.round(time.Second, map[int][]direction{0: {wanLink}, 1: {wanLink}, 2: {wanLink}}), (most-60)/2, most/3, (most-60)/2)
	d.wantPaces("two are left, and one does not answer", d.round(3*time.Second, map[int][]direction{1: {wanLink}, 2: {wanLink}}), 0, most/2, most-60)
	d.wantPaces("opposite directions", d.round(time.Second, map[int][]direction{0: {wanLink}, 1: {{wanLink.to, wanLink.from}}}), 0, 0)
	if len(d.senders) > 0 {
		t.Errorf("%d senders are left", len(d.senders))
	}
}

// TestDivisionOfUnknown checks that a link of unknown capacity is divided as soon as an agent knows
// what it carries, or its queue shows that.
func TestDivisionOfUnknown(t *testing.T) {
	both := map[int][]direction{0: {wanLink}, 1: {wanLink}}
	d := newDivision(t, 0)
	d.wantPaces("nothing is known", d.round(0, both), 0, 0)
	if l := d.limits(d.now); len(l) != 2 {
		t.Errorf("%d agents know that they share the link", len(l))
	}
	d.report(0, agentapi.PathStatus{Sessions: 1, Delivered: 50e6})
	d.report(1, agentapi.PathStatus{Sessions: 1, Delivered: 60e6})
	d.wantPaces("no queue", d.round(time.Second, both), 0, 0)
	d.report(0, agentapi.PathStatus{Sessions: 1, Delivered: 140e6, Queued: true, Rate: 140e6, Doubtful: true})
	d.report(1, agentapi.PathStatus{Sessions: 1, Delivered: 160e6, Queued: true})
	l := d.round(time.Second, both)
	d.wantPaces("a queue", l, 150, 150)
	if l[0].Rate != 300e6 {
		t.Errorf("the path is said to carry %d", l[0].Rate)
	}

	d.report(0, agentapi.PathStatus{Sessions: 1, Delivered: math.MaxUint64, Rate: math.MaxUint64, Seen: d.now})
	if l := d.round(time.Second, both)[1]; l.Pace > agentapi.MaxPathRate || l.Rate > agentapi.MaxPathRate {
		t.Errorf("an agent that lies makes the other's limit %+v, which no agent takes", l)
	}

	d = newDivision(t, 0)
	d.round(0, both)
	d.report(0, agentapi.PathStatus{Sessions: 1, Delivered: 200e6, Rate: 200e6, Seen: d.now})
	d.wantPaces("one knows the rate", d.round(time.Second, both), 100, 100)
	d.round(time.Second, map[int][]direction{0: {wanLink}})
	d.wantPaces("it is remembered", d.round(time.Second, both), 100, 100)
	d.round(time.Second, map[int][]direction{0: {wanLink}})
	d.round(2*estimateAge, map[int][]direction{0: {wanLink}})
	if len(d.estimates) > 0 {
		t.Errorf("%d estimates are left", len(d.estimates))
	}
}

// TestSendersAreBounded checks that only so many senders have limits.
func TestSendersAreBounded(t *testing.T) {
	d := newDivision(t, 300e6)
	all := map[senderKey][]direction{}
	for i := range 2 * maxSenders {
		all[senderKey{d.x[i%3], netip.AddrPortFrom(agentY.Addr(), uint16(1+i))}] = []direction{wanLink}
	}
	for range 2 {
		d.update(all, d.now)
		if len(d.senders) != maxSenders {
			t.Fatalf("%d senders", len(d.senders))
		}
	}
	for a, l := range d.limits(d.now) {
		if len(l) > agentapi.MaxLimits {
			t.Errorf("agent %s gets %d limits", a.Name, len(l))
		}
	}
}

// TestLinksBetween checks the links of agents' paths in both directions.
func TestLinksBetween(t *testing.T) {
	paths := [][]network.Hop{
		{{Switch: 1, In: 1, Out: 2}, {Switch: 2, In: 3, Out: 4}},
		{{Switch: 1, In: 1, Out: 5}, {Switch: 3, In: 6, Out: 7}, {Switch: 2, In: 8, Out: 4}},
	}
	same := func(what string, got []direction, want ...direction) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
	}
	there, back := linksBetween(paths, 0, at(1, 1), at(2, 4), false)
	same("there", there, direction{at(1, 2), at(2, 3)})
	same("back", back, direction{at(2, 3), at(1, 2)})
	there, _ = linksBetween(paths, 1, at(2, 4), at(1, 1), true)
	if len(there) != 2 || there[0].from.Switch == 1 {
		t.Errorf("reversed: %v", there)
	}
	there, back = linksBetween(nil, 0, at(1, 1), at(2, 4), false)
	same("no path is known", there, direction{at(1, 0), at(2, 0)})
	same("no path is known, back", back, direction{at(2, 0), at(1, 0)})
	if there, _ = linksBetween(nil, 0, at(1, 1), at(1, 4), false); there != nil {
		t.Errorf("at one switch: %v", there)
	}
}

// TestAgentsOfOneSite checks that agents of one site with sessions to another get limits as soon as
// there are two of them, and none when one is left.
func TestAgentsOfOneSite(t *testing.T) {
	b := newBench(t)
	b.add("x2", b.x2, netip.MustParseAddr("10.0.0.13"))
	y := netip.AddrPortFrom(agentY.Addr(), 7001)
	b.x.mu.Lock()
	b.x.paths = []agentapi.PathStatus{{Peer: y.Addr(), Port: y.Port(), Rate: 200e6, Seen: time.Now(), Sessions: 1, Delivered: 190e6, Queued: true}}
	b.x.mu.Unlock()
	for i := range 2 {
		_, held := b.syn(netip.AddrPortFrom(hostA.Addr(), uint16(40000+i)))
		if got := b.fate(held); got != "released" {
			t.Fatalf("the packet was %s", got)
		}
	}
	for _, a := range []*fakeAgent{b.x, b.x2} {
		b.eventually("agent "+a.name+" may send half of what the link carries", func() bool {
			l, ok := a.limitOf(y)
			return ok && l.Pace == 100e6 && l.Rate == 200e6
		})
	}
	b.eventually("the other agent knows that its paths back share the link", func() bool {
		_, ok := b.y.limitOf(netip.AddrPortFrom(agentX.Addr(), 7001))
		return ok
	})
	id := b.x2.only(t)
	b.x2.finish(id, agentapi.ReasonClosed)
	b.y.finish(id, agentapi.ReasonClosed)
	for _, a := range []*fakeAgent{b.x, b.x2, b.y} {
		b.eventually("agent "+a.name+" has no limit", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.limits) == 0 })
	}
}
