package route

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

const ms = time.Millisecond

func TestLatency(t *testing.T) {
	for name, c := range map[string]struct{ control, links, want []time.Duration }{
		"nothing":                    {nil, nil, []time.Duration{}},
		"one switch":                 {[]time.Duration{3 * ms}, nil, []time.Duration{3 * ms}},
		"equal control":              {[]time.Duration{5 * ms, 5 * ms}, []time.Duration{2 * ms}, []time.Duration{5 * ms, 7 * ms}},
		"slow join":                  {[]time.Duration{9 * ms, 5 * ms}, []time.Duration{2 * ms}, []time.Duration{9 * ms, 11 * ms}},
		"slow edge":                  {[]time.Duration{1 * ms, 5 * ms}, []time.Duration{2 * ms}, []time.Duration{1 * ms, 5 * ms}},
		"slow edge, but slower link": {[]time.Duration{1 * ms, 5 * ms}, []time.Duration{20 * ms}, []time.Duration{1 * ms, 21 * ms}},
		"slow in the middle":         {[]time.Duration{1 * ms, 8 * ms, 2 * ms}, []time.Duration{2 * ms, 3 * ms}, []time.Duration{1 * ms, 8 * ms, 11 * ms}},
		"a link that is not known":   {[]time.Duration{1 * ms, 1 * ms, 1 * ms}, []time.Duration{2 * ms}, []time.Duration{1 * ms, 3 * ms, 3 * ms}},
	} {
		if got := Latency(c.control, c.links); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The model is compared with a replay: a packet is sent again and again from the join on, against
// switches that are written each at its own time.
func TestLatencyIsWhenTheFirstPacketArrives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "switches")
		c, l := make([]time.Duration, n), make([]time.Duration, n-1)
		for i := range c {
			c[i] = time.Duration(rapid.IntRange(0, 20).Draw(t, "c")) * ms
		}
		for i := range l {
			l[i] = time.Duration(rapid.IntRange(0, 20).Draw(t, "l")) * ms
		}
		first := time.Duration(-1)
		for sent := time.Duration(0); first < 0; sent += ms {
			at, alive := sent, true
			for i := range c {
				alive = alive && at >= c[i]
				if i < len(l) {
					at += l[i]
				}
			}
			if alive {
				first = at
			}
		}
		if got := Latency(c, l)[n-1]; got != first {
			t.Fatalf("the model says %v, a packet is there at %v", got, first)
		}
		if waited := WaveLatency(c, l); waited < Latency(c, l)[n-1] {
			t.Fatalf("in waves %v, at once %v", waited, Latency(c, l)[n-1])
		}
	})
}

func TestEstablishment(t *testing.T) {
	e := Establish(2*ms, 3*ms, []time.Duration{1 * ms, 7 * ms, 3 * ms})
	e.Ta = 100 * ms
	if want := (Establishment{Ta: 100 * ms, Td: 20 * ms, Tf: 7 * ms, Te: 2 * ms}); e != want || e.Total() != 129*ms {
		t.Errorf("%+v, total %v", e, e.Total())
	}
}

func TestBranchLatencies(t *testing.T) {
	link := func(a, b network.PortRef, l time.Duration) []network.Link {
		return []network.Link{{From: a, To: b, Latency: l}, {From: b, To: a, Latency: l}}
	}
	top := topology.New(1, []openflow.DatapathID{1, 2, 3}, append(link(ref(1, 1), ref(2, 1), 4*ms), link(ref(2, 2), ref(3, 1), 5*ms)...))
	hops := []network.Hop{{Switch: 1, In: 9, Out: 1}, {Switch: 2, In: 1, Out: 2}, {Switch: 3, In: 1, Out: 8}}
	c, l := BranchLatencies(top, hops, func(d openflow.DatapathID) time.Duration { return time.Duration(d) * ms })
	if !slices.Equal(c, []time.Duration{1 * ms, 2 * ms, 3 * ms}) || !slices.Equal(l, []time.Duration{4 * ms, 5 * ms}) {
		t.Errorf("control %v, links %v", c, l)
	}
	if got := Latency(c, l); !slices.Equal(got, []time.Duration{1 * ms, 5 * ms, 10 * ms}) {
		t.Errorf("%v", got)
	}
	if got := WaveLatency(c, l); got != 6*ms+1*ms+9*ms {
		t.Errorf("in waves %v", got)
	}
}
