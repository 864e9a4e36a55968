package network

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// One switch has its rate, all have theirs, and who has caused nothing lately has one
// whatever others have taken.
func TestBudgetIsShared(t *testing.T) {
	now := time.Now()
	b := budget{each: rate{burst: 3, interval: time.Second}, all: rate{burst: 5, interval: 500 * time.Millisecond}}
	take := func(by openflow.DatapathID, tries int, at time.Time) (taken int) {
		for range tries {
			if b.take(by, at) {
				taken++
			}
		}
		return taken
	}
	for _, c := range []struct {
		by   openflow.DatapathID
		at   time.Duration
		want int
		why  string
	}{
		{1, 0, 3, "its burst"},
		{2, 0, 2, "what is left of all"},
		{3, 0, 1, "its first, beyond what is left"},
		{1, time.Second, 1, "one more each interval"},
		{2, time.Second, 1, "the other of two intervals of all"},
		{1, time.Minute, 3, "its burst again"},
	} {
		if got := take(c.by, 1000, now.Add(c.at)); got != c.want {
			t.Errorf("switch %v took %d after %v, want %d: %s", c.by, got, c.at, c.want, c.why)
		}
	}
	for d := range openflow.DatapathID(10 * maxInDebt) {
		b.take(d, now.Add(time.Duration(d)*time.Hour))
	}
	if n := len(b.switches); n > maxInDebt {
		t.Errorf("%d switches are remembered that owe nothing", n)
	}
}

// Who is to be asked again is bounded by port, by switch and in all, and gives way to others
// of the same source first; among those, to those of the switch where most are to be asked.
func TestAmendsAreBounded(t *testing.T) {
	t.Parallel()
	var a amends
	claims := func(by PortRef, of openflow.DatapathID, count int) {
		for range count {
			m := &amend{by: by}
			m.Host = topology.Host{At: PortRef{Switch: of, Port: 1}}
			m.Ask = []netip.Addr{{}}
			a.note(m)
		}
	}
	left := func(by PortRef, of openflow.DatapathID) int {
		return a.count(func(m *amend) bool { return m.by == by && m.Host.At.Switch == of })
	}
	hostile, honest := PortRef{Switch: 1, Port: 1}, PortRef{Switch: 2, Port: 1}
	claims(honest, 3, 2)
	claims(hostile, 3, 1) // one that is real
	claims(hostile, 1, 10*maxAmends)
	if n := a.count(func(m *amend) bool { return m.by == hostile }); n != maxAmendsPerPort || left(hostile, 3) != 1 {
		t.Errorf("%d of one port, of which %d of another switch; want %d with the one that is not made up", n, left(hostile, 3), maxAmendsPerPort)
	}
	for p := range uint32(100) {
		claims(PortRef{Switch: 1, Port: 2 + p}, 1, 100)
	}
	if n := a.count(func(m *amend) bool { return m.by.Switch == 1 }); n != maxAmendsPerSwitch {
		t.Errorf("%d of one switch, want %d", n, maxAmendsPerSwitch)
	}
	for d := range openflow.DatapathID(100) {
		claims(PortRef{Switch: 100 + d, Port: 1}, 100+d, 100)
	}
	if len(a.open) != maxAmends {
		t.Errorf("%d in all, want %d", len(a.open), maxAmends)
	}
	if left(honest, 3) != 2 {
		t.Errorf("%d of the honest port are left, want both", left(honest, 3))
	}
	if !slices.ContainsFunc(a.open, func(m *amend) bool { return m.by.Switch == 199 }) {
		t.Error("the last has no place")
	}
}

// What is refused at one switch is told at its rate, at all at theirs, and the first of
// each whatever others do; what is left out is counted.
func TestRefusalsAreToldBySwitch(t *testing.T) {
	n, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	now := time.Now()
	told := func(d openflow.DatapathID, tries int) (turns int) {
		for range tries {
			if _, turn := n.events.refused.turn(PortRef{Switch: d}, now); turn {
				turns++
			}
		}
		return turns
	}
	if got := told(1, 10_000); got != refusedAtOnce {
		t.Errorf("%d of one switch at once, want %d", got, refusedAtOnce)
	}
	all := refusedAtOnce
	for d := range openflow.DatapathID(100) {
		all += told(2+d, 100)
	}
	if want := refusedInAll + 100 - (refusedInAll-refusedAtOnce)/refusedAtOnce - 1; all < refusedInAll || all > want {
		t.Errorf("%d of all at once, want at most %d", all, want)
	}
	if got := told(1000, 100); got != 1 {
		t.Errorf("%d of one more switch, want its first", got)
	}
	if left := n.events.refused.quiet(now.Add(toldQuiet)); left[PortRef{Switch: 1}] != 10_000-refusedAtOnce || left[PortRef{Switch: 1000}] != 99 {
		t.Errorf("left out %d and %d", left[PortRef{Switch: 1}], left[PortRef{Switch: 1000}])
	}
}
