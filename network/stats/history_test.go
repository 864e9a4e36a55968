package stats

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

func TestHistory(t *testing.T) {
	const every = 5 * time.Second
	h := NewHistory(time.Hour, every)
	back := topology.Link{From: b, To: a, Capacity: 2_000_000, Latency: 7 * time.Millisecond}
	there := topology.Link{From: a, To: b, Capacity: 10_000_000, Latency: time.Millisecond, Jitter: 100 * time.Microsecond}
	var now time.Time
	at := func(i int) time.Time { return t0.Add(time.Duration(i) * every) }
	measured := func(i int) func(topology.Link) Load {
		return func(l topology.Link) Load {
			return Load{At: at(i), Interval: every, Used: uint64(1000 * i), Loss: Loss{Path: 0.01}}
		}
	}
	for i := range 1000 {
		now = at(i)
		h.Record(now, []topology.Link{there, back}, measured(i))
		h.Record(now, []topology.Link{there, back}, measured(i)) // without a new measurement
	}
	tracks := h.Since(a, time.Time{})
	if len(tracks) != 1 || tracks[0].To != b || len(tracks[0].Points) != 720 {
		t.Fatalf("%d tracks, want one with an hour of points", len(tracks))
	}
	for i, p := range tracks[0].Points {
		want := Point{
			At: at(280 + i), Interval: every, Used: uint64(1000 * (280 + i)), Capacity: 10_000_000,
			Latency: time.Millisecond, Jitter: 100 * time.Microsecond, Loss: 0.01,
		}
		if p != want {
			t.Fatalf("point %d: %+v, want %+v", i, p, want)
		}
	}
	if got := h.Since(a, at(997)); len(got) != 1 || len(got[0].Points) != 2 {
		t.Errorf("since the last but two: %v", got)
	}
	if got := h.Since(b, at(998)); len(got) != 1 || got[0].Points[0].Latency != 7*time.Millisecond || got[0].Points[0].Available() != 2_000_000-999_000 {
		t.Errorf("the other direction: %+v", got)
	}

	// The cable moves; its former end is still in the history, for an hour.
	c := topology.PortRef{Switch: 3, Port: 1}
	there.To = c
	h.Record(now.Add(every), []topology.Link{there}, measured(1000))
	if got := h.Since(a, at(998)); len(got) != 2 || got[0].To != b || got[1].To != c || len(got[1].Points) != 1 {
		t.Errorf("after a move: %+v", got)
	}
	h.Record(now.Add(time.Hour+2*every), []topology.Link{there}, measured(1721))
	if got := h.Since(a, time.Time{}); len(got) != 1 || got[0].To != c {
		t.Errorf("an hour later: %+v", got)
	}
	if got := h.Since(b, time.Time{}); got != nil {
		t.Errorf("a link that has been down for an hour is remembered: %v", got)
	}
}

func TestHistoryLeavesOutWhatWasNotMeasured(t *testing.T) {
	h := NewHistory(time.Hour, time.Second)
	h.Record(t0, []topology.Link{link}, func(topology.Link) Load { return Load{} })
	if got := h.Since(a, time.Time{}); got != nil {
		t.Errorf("%v", got)
	}
}
