package stats

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

var (
	t0   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a    = topology.PortRef{Switch: 1, Port: 1}
	b    = topology.PortRef{Switch: 2, Port: 2}
	link = topology.Link{From: a, To: b, Capacity: 10_000_000}
)

// sample returns a reading whose reply took rtt.
func sample(at topology.PortRef, second float64, rtt time.Duration, age time.Duration, c Counters) Sample {
	sent := t0.Add(time.Duration(second * float64(time.Second)))
	return Sample{Port: at, Sent: sent, Received: sent.Add(rtt), Age: age, Counters: c}
}

func near(x, y float64) bool { return math.Abs(x-y) < 1e-6*math.Max(1, math.Abs(y)) }

func TestRates(t *testing.T) {
	const none = -1
	for _, tt := range []struct {
		name     string
		old, new Sample
		tx       float64 // bits per second
	}{
		{
			"plain", sample(a, 0, 0, time.Minute, Counters{TxBytes: 1000}),
			sample(a, 5, 0, 65*time.Second, Counters{TxBytes: 6000}), 8000,
		},
		{
			// Read at 0.5 s and at 5.1 s: 4.6 s lie between, not 5.
			"slow reply, then a fast one", sample(a, 0, time.Second, time.Minute, Counters{TxBytes: 0}),
			sample(a, 5, 200*time.Millisecond, 65*time.Second, Counters{TxBytes: 4600}), 8000,
		},
		{
			"wrap of 32 bits", sample(a, 0, 0, time.Minute, Counters{TxBytes: math.MaxUint32 - 999}),
			sample(a, 1, 0, 61*time.Second, Counters{TxBytes: 1000}), 16000,
		},
		{
			"wrap of 64 bits", sample(a, 0, 0, time.Minute, Counters{TxBytes: math.MaxUint64 - 999}),
			sample(a, 1, 0, 61*time.Second, Counters{TxBytes: 1000}), 16000,
		},
		{
			"reset", sample(a, 0, 0, time.Minute, Counters{TxBytes: 5000}),
			sample(a, 5, 0, 2*time.Second, Counters{TxBytes: 1000}), none,
		},
		{
			"reset and grown beyond", sample(a, 0, 0, time.Minute, Counters{TxBytes: 5000}),
			sample(a, 5, 0, 2*time.Second, Counters{TxBytes: 9000}), none,
		},
		{
			"gone back, age unknown", sample(a, 0, 0, 0, Counters{TxBytes: 5000}),
			sample(a, 5, 0, 0, Counters{TxBytes: 1000}), none,
		},
		{
			"counter not kept", sample(a, 0, 0, time.Minute, Counters{TxBytes: Unsupported}),
			sample(a, 5, 0, 65*time.Second, Counters{TxBytes: Unsupported}), 0,
		},
		{
			"reply overtaken by a later one", sample(a, 5, 0, time.Minute, Counters{TxBytes: 5000}),
			sample(a, 4, 0, time.Minute, Counters{TxBytes: 4000}), none,
		},
		{
			"switch away for a minute", sample(a, 0, 0, time.Minute, Counters{TxBytes: 0}),
			sample(a, 60, 0, 2*time.Minute, Counters{TxBytes: 60000}), 8000,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := New(Options{})
			if _, ok := table.Observe(tt.old); ok {
				t.Fatal("one reading gives a rate")
			}
			r, ok := table.Observe(tt.new)
			if ok != (tt.tx != none) || ok && !near(r.TxBits, tt.tx) {
				t.Errorf("%v, %v; want %v", r.TxBits, ok, tt.tx)
			}
		})
	}
}

func TestRatesAreBounded(t *testing.T) {
	table := New(Options{Interval: time.Second, LossWindow: 6 * time.Second})
	for i := range 100 {
		table.Observe(sample(a, float64(i), 0, time.Minute+time.Duration(i)*time.Second, Counters{RxPackets: uint64(i * i)}))
	}
	var h []Rate
	for r := range table.ports[a][Polled].all() {
		h = append(h, r)
	}
	if len(h) != 10 || !h[0].At.Equal(t0.Add(90*time.Second)) || !h[9].At.Equal(t0.Add(99*time.Second)) {
		t.Fatalf("%d points from %v", len(h), h[0].At)
	}
	for i, r := range h {
		if want := float64(2*(90+i) - 1); !near(r.RxPackets, want) {
			t.Errorf("point %d: %v, want %v", i, r.RxPackets, want)
		}
	}
	if r, ok := table.Rate(a); !ok || !near(r.RxPackets, 197) {
		t.Errorf("latest %v, %v", r, ok)
	}
	table.Forget(a)
	if _, ok := table.Rate(a); ok {
		t.Error("a forgotten port is remembered")
	}
}

// TestSources checks that another source replaces a silent one, and that rates of two sources
// are never mixed.
func TestSources(t *testing.T) {
	table := New(Options{Interval: 5 * time.Second})
	feed := func(by Source, second float64, bytes uint64) {
		s := sample(a, second, 0, 0, Counters{TxBytes: bytes})
		s.Source = by
		table.Observe(s)
	}
	feed(Polled, 0, 0)
	feed(Pushed, 1, 5000)
	feed(Polled, 5, 5000)
	feed(Pushed, 6, 15000)
	want := func(when string, bits float64) {
		t.Helper()
		if r, ok := table.Rate(a); !ok || !near(r.TxBits, bits) {
			t.Errorf("%s: %v, %v; want %v bit/s", when, r.TxBits, ok, bits)
		}
	}
	want("both speak", 8000)
	if r, ok := table.RateBy(a, Pushed); !ok || !near(r.TxBits, 16000) {
		t.Errorf("pushed: %v, %v", r.TxBits, ok)
	}
	feed(Pushed, 20, 15000+28000)
	want("one missed a few times", 8000)
	feed(Pushed, 25, 43000+20000)
	want("one has fallen silent", 32000)
	feed(Polled, 30, 30000)
	want("it speaks again", 8000)
}

func TestLoad(t *testing.T) {
	table := New(Options{})
	if l := table.Load(link); l.Used != 0 || l.Packets > 0 {
		t.Errorf("unmeasured: %+v", l)
	}
	// 4 Mbit/s, a tenth of the packets lost; the far end is read 300 ms later.
	for i := range 20 {
		s := float64(5 * i)
		age := time.Minute + time.Duration(i)*5*time.Second
		table.Observe(sample(a, s, 0, age, Counters{TxBytes: uint64(500000 * s), TxPackets: uint64(1000 * s)}))
		table.Observe(sample(b, s+0.3, 0, age, Counters{RxBytes: uint64(450000 * (s + 0.3)), RxPackets: uint64(900 * (s + 0.3))}))
	}
	back := topology.Link{From: b, To: a, Capacity: 10_000_000}
	table.CompareEnds([]topology.Link{link, back})
	l := table.Load(link)
	if l.Used != 4_000_000 || l.Packets == 0 || math.Abs(l.Path-0.1) > 0.001 {
		t.Errorf("%+v, want 4 of 10 Mbit/s and a loss of 0.1", l)
	}
	if l := table.Load(back); l.Used != 0 || l.Packets > 0 {
		t.Errorf("the other direction carries nothing: %+v", l)
	}
	links := []topology.Link{{From: a, To: b}}
	table.Annotate(links, nil, func(topology.PortRef) uint64 { return 1e9 })
	if links[0].Capacity != 1e9 || links[0].Used != 4_000_000 || links[0].Available() != 996_000_000 || math.Abs(links[0].Loss-0.1) > 0.001 {
		t.Errorf("annotated %+v", links[0])
	}
}

func TestLoadFromTheReceivingEnd(t *testing.T) {
	table := New(Options{})
	table.Observe(sample(b, 0, 0, time.Minute, Counters{}))
	table.Observe(sample(b, 1, 0, 61*time.Second, Counters{RxBytes: 1000}))
	if l := table.Load(link); l.Used != 8000 {
		t.Errorf("used %d, want 8000 as the receiving end counts", l.Used)
	}
}

func TestCapacity(t *testing.T) {
	back := topology.Link{From: b, To: a}
	for _, tt := range []struct {
		name        string
		configured  map[topology.PortRef]uint64
		speedA      uint64
		speedB      uint64
		there, back uint64
	}{
		{"nothing known", nil, 0, 0, 0, 0},
		{"one end does not tell", nil, 1e9, 0, 1e9, 1e9},
		{"unequal ends", nil, 1e10, 1e9, 1e9, 1e9},
		{"configured in one direction", map[topology.PortRef]uint64{a: 2e6}, 1e9, 1e9, 2e6, 1e9},
		{"configured for each direction", map[topology.PortRef]uint64{a: 2e6, b: 50e6}, 1e9, 1e9, 2e6, 50e6},
	} {
		links := []topology.Link{{From: a, To: b}, back}
		New(Options{}).Annotate(links, tt.configured, func(at topology.PortRef) uint64 {
			if at == a {
				return tt.speedA
			}
			return tt.speedB
		})
		if links[0].Capacity != tt.there || links[1].Capacity != tt.back {
			t.Errorf("%s: %d there and %d back, want %d and %d", tt.name, links[0].Capacity, links[1].Capacity, tt.there, tt.back)
		}
	}
}
