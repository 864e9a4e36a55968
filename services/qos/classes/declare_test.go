package classes

import (
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// another is a second controller with the same store and the same network.
func (x *setting) another() *Service {
	x.t.Helper()
	o := x.Options
	o.Book, o.Databases, o.Publish = reserve.New(x.fabric.use), &databases{x.bases}, func(string, any) {}
	s := New(o)
	if err := s.load(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
	close(s.loaded)
	s.tasks.Start(s.Declared.Run)
	x.t.Cleanup(s.tasks.Stop)
	return s
}

// What another controller declares, changes or withdraws is in the switches here, too.
func TestClassesOfOthers(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	other := x.another()
	if _, err := other.Add(t.Context(), request(t, "shared", 7000)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not here", func() bool { c, ok := x.Class("shared"); return ok && c.State == StateActive })
	before, _ := x.Class("shared")
	changed := request(t, "shared", 8000)
	if err := other.Declared.Replace(t.Context(), "shared", &changed, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not changed here", func() bool {
		c, _ := x.Class("shared")
		return c.State == StateActive && c.Flows[0].UDPDst == "8000"
	})
	if after, _ := x.Class("shared"); after.Queue != before.Queue {
		t.Errorf("its queue was %d and is %d", before.Queue, after.Queue)
	}
	if err := other.Declared.Remove(t.Context(), "shared", 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is still here", func() bool { _, ok := x.Class("shared"); return !ok })
	if kinds := x.published(); !slices.Contains(kinds, "qos.class.accepted") || !slices.Contains(kinds, "qos.class.changed") || !slices.Contains(kinds, "qos.class.removed") {
		t.Errorf("events %v", kinds)
	}
}

// A class that is changed to what cannot be is degraded, without rules of what it was; and
// active again when it can be.
func TestClassChangedBeyondWhatFits(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	if _, err := x.add("greedy"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rate  uint64
		state string
		rules int
	}{{20e6, StateDegraded, 0}, {1e6, StateActive, 1}} {
		class := request(t, "greedy", 7000)
		class.MinRate = c.rate
		class.Spec.MinRate = match.Text(strconv.FormatUint(c.rate, 10))
		if err := x.Declared.Replace(t.Context(), "greedy", &class, 0); err != nil {
			t.Fatal(err)
		}
		if now, _ := x.Class("greedy"); now.State != c.state || len(x.rules.Keys()) != c.rules {
			t.Errorf("at %d bit/s it is %s (%s), with %d programs; want %s, %d", c.rate, now.State, now.Reason, len(x.rules.Keys()), c.state, c.rules)
		}
		if got := x.Book.Promised(portRef(1, 2)); c.state == StateDegraded && got != 0 || c.state == StateActive && got != c.rate {
			t.Errorf("at %d bit/s %d are promised", c.rate, got)
		}
	}
}
