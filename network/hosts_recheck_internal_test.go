package network

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// TestRechecksWaitForTheSwitch checks when a host is probed again. If its switch is disconnected,
// it is waited for as long as hosts of such switches are kept, probed at once when it is back, and
// then as often as others.
func TestRechecksWaitForTheSwitch(t *testing.T) {
	s := func(n ...float64) (all []time.Duration) {
		for _, x := range n {
			all = append(all, time.Duration(x*float64(time.Second)))
		}
		return all
	}
	for name, c := range map[string]struct {
		away, back time.Duration // when the switch is not there
		asked      []time.Duration
		ends       time.Duration
	}{
		"there all the time": {0, 0, s(1, 3, 8, 20), 20 * time.Second},
		"back soon":          {0, 2 * time.Second, s(1, 2, 3, 5, 10, 22), 22 * time.Second},
		"back late":          {0, 50 * time.Second, s(1, 3, 8, 20, 50, 51, 53, 58, 70), 70 * time.Second},
		"not back":           {0, time.Hour, s(1, 3, 8, 20), time.Minute},
		"back too late":      {0, 61 * time.Second, s(1, 3, 8, 20), time.Minute},
		"goes and comes":     {10 * time.Second, 30 * time.Second, s(1, 3, 8, 20, 30, 31, 33, 38, 50), 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var a rechecks
			began := time.Now()
			a.insert(&recheck{begun: began, since: began})
			var asked []time.Duration
			var ended time.Duration
			for at := time.Duration(0); at <= 2*time.Minute && ended == 0; at += recheckInterval {
				ask, left := a.due(began.Add(at), func(PortRef) bool { return at < c.away || at >= c.back })
				if len(ask) > 0 {
					asked = append(asked, at)
				}
				if !left {
					ended = at
				}
			}
			if !slices.Equal(asked, c.asked) || ended != c.ends {
				t.Errorf("asked at %v until %v, want %v until %v", asked, ended, c.asked, c.ends)
			}
		})
	}
}

// TestRechecksAreBounded checks that rechecks are bounded by port, by switch and in all, and which
// one is evicted: first one of the same source, and among those one of the switch where most are
// pending.
func TestRechecksAreBounded(t *testing.T) {
	t.Parallel()
	var a rechecks
	claims := func(by PortRef, of openflow.DatapathID, count int) {
		for range count {
			m := &recheck{claimedAt: by}
			m.question.Host = topology.Host{At: PortRef{Switch: of, Port: 1}}
			m.question.Ask = []netip.Addr{{}}
			a.insert(m)
		}
	}
	left := func(by PortRef, of openflow.DatapathID) int {
		return a.count(func(m *recheck) bool { return m.claimedAt == by && m.question.Host.At.Switch == of })
	}
	hostile, honest := PortRef{Switch: 1, Port: 1}, PortRef{Switch: 2, Port: 1}
	claims(honest, 3, 2)
	claims(hostile, 3, 1) // one that is real
	claims(hostile, 1, 10*maxRechecks)
	if n := a.count(func(m *recheck) bool { return m.claimedAt == hostile }); n != maxRechecksPerPort || left(hostile, 3) != 1 {
		t.Errorf("%d of one port, of which %d of another switch; want %d with the one that is not made up", n, left(hostile, 3), maxRechecksPerPort)
	}
	for p := range uint32(100) {
		claims(PortRef{Switch: 1, Port: 2 + p}, 1, 100)
	}
	if n := a.count(func(m *recheck) bool { return m.claimedAt.Switch == 1 }); n != maxRechecksPerSwitch {
		t.Errorf("%d of one switch, want %d", n, maxRechecksPerSwitch)
	}
	for d := range openflow.DatapathID(100) {
		claims(PortRef{Switch: 100 + d, Port: 1}, 100+d, 100)
	}
	if len(a.pending) != maxRechecks {
		t.Errorf("%d in all, want %d", len(a.pending), maxRechecks)
	}
	if left(honest, 3) != 2 {
		t.Errorf("%d of the honest port are left, want both", left(honest, 3))
	}
	if !slices.ContainsFunc(a.pending, func(m *recheck) bool { return m.claimedAt.Switch == 199 }) {
		t.Error("the last has no place")
	}
}
