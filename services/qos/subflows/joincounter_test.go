package subflows

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
)

// A port with too many SYNs that are not placed is quiet once; those with fewer are not, and no
// more ports are counted than may be.
func TestPortsWithTooManyAreQuiet(t *testing.T) {
	c, now := newJoinCounter(), time.Unix(1000, 0)
	loud, other := hostAt(1, 1), hostAt(1, 2)
	times := 0
	for range 1000 {
		if c.add(loud, now) {
			times++
		}
	}
	if times != 1 {
		t.Errorf("1000 in a second: it is to be quiet %d times", times)
	}
	for i := range 1000 {
		if c.add(other, now.Add(time.Duration(i)*10*time.Millisecond)) {
			t.Fatal("100 a second: it is to be quiet")
		}
	}
	c.resume(loud)
	if c.add(loud, now.Add(time.Minute)) {
		t.Error("it is quiet again at once")
	}
	for i := range uint32(10 * maxCounted) {
		c.add(network.PortRef{Switch: 9, Port: i}, now.Add(time.Minute))
	}
	if len(c.of) > maxCounted {
		t.Errorf("%d ports are counted", len(c.of))
	}
}

// The switch of such a port drops its marked SYNs, and no others, until the time is over or the
// service ends; a port between switches is never quiet.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		loud, inside := hostAt(1, 1), port(5, 2)
		for range maxUnplaced + 1 {
			w.countUnplaced(loud)
			w.countUnplaced(inside)
		}
		key := "quiet/" + loud.String()
		synctest.Wait()
		if len(w.rules.Program(key).Rules) == 0 {
			t.Fatalf("there are %v", w.rules.Keys())
		}
		for _, r := range w.rules.Program(key).Rules {
			if r.Switch != loud.Switch || len(r.Actions) != 0 || !r.Leased || r.Offset <= rule.RouteSubflowAsk || r.Offset >= rule.RouteSubflow {
				t.Errorf("%+v", r)
			}
		}
		if n := len(w.rules.Program("quiet/" + inside.String()).Rules); n != 0 {
			t.Errorf("%d rules for a port between switches", n)
		}
		w.stop()
		if n := len(w.rules.Program(key).Rules); n != 0 || len(w.counts.dropping) != 0 {
			t.Errorf("%d rules are left, and %d ports are quiet", n, len(w.counts.dropping))
		}
	})
}
