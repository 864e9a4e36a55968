package agent

import (
	"math"
	"testing"
	"time"
)

// weather is what looks at a path of 100 ms and 1 Gbit/s, full segments 8948
// bytes, show for some time.
type weather struct {
	lasts  time.Duration
	mbit   float64
	grows  float64       // by this factor a second
	queue  time.Duration // wait in the path's queue
	losses float64       // a second
	idle   bool
}

// walk shows the weather to a steering and returns when it decided something.
func walk(x *steering, conns int, course ...weather) (decided []time.Duration) {
	const every = 250 * time.Millisecond
	l := look{at: every, base: 100 * time.Millisecond, segment: 8948, conns: conns}
	losses := 0.0
	for _, w := range course {
		for t := time.Duration(0); t < w.lasts; t += every {
			bytes := w.mbit * 1e6 / 8 * every.Seconds()
			if w.grows > 0 {
				bytes *= math.Pow(w.grows, t.Seconds())
			}
			losses += w.losses * every.Seconds()
			l.at += every
			l.arrived += uint64(bytes / 8948)
			l.sent = l.arrived
			l.losses = uint64(losses)
			l.rtt, l.idle = l.base+w.queue, w.idle
			if x.note(l) {
				decided = append(decided, l.at.Round(time.Second))
			}
		}
	}
	return decided
}

func TestSteering(t *testing.T) {
	const full = 100 * time.Millisecond // a queue of one bandwidth-delay product
	bbr := weather{lasts: 5 * time.Second, mbit: 940, queue: full, losses: 30}
	for _, c := range []struct {
		name     string
		conns    int
		course   []weather
		switches int
	}{
		{"start-up goes on", 8, []weather{{lasts: 3 * time.Second, mbit: 10, grows: 4}}, 0},
		{"the client is slow", 8, []weather{{lasts: 20 * time.Second, mbit: 300, idle: true}}, 0},
		{"one connection", 1, []weather{bbr}, 0},
		{"steady, bbr loses its own excess: trial", 8, []weather{bbr}, 1},
		{"0.1 % lost at the start", 8, []weather{{lasts: time.Second, mbit: 500, losses: 14}, bbr}, 0},
		{"cubic fills the path", 8, []weather{bbr, {lasts: time.Minute, mbit: 990, queue: full / 2}}, 1},
		{"cubic overfills the queue", 8, []weather{bbr, {lasts: time.Minute, mbit: 990, queue: full, losses: 30}}, 1},
		{"0.01 % lost, queue often empty", 8, []weather{bbr, {lasts: time.Minute, mbit: 980, losses: 1.4}}, 1},
		{"0.1 % lost", 8, []weather{bbr, {lasts: 1500 * time.Millisecond, mbit: 950, losses: 14}}, 2},
		{"less is carried", 8, []weather{bbr, {lasts: 5 * time.Second, mbit: 850}}, 2},
		{"less, but the queue is full", 8, []weather{bbr, {lasts: 5 * time.Second, mbit: 890, queue: full}}, 1},
		{"much less, though the queue is full", 8, []weather{bbr, {lasts: 5 * time.Second, mbit: 500, queue: full}}, 2},
		{"the client has become slow", 8, []weather{bbr, {lasts: time.Minute, mbit: 100, idle: true}}, 1},
	} {
		x := &steering{}
		got := walk(x, c.conns, c.course...)
		if x.switches != c.switches || x.filling != (c.switches%2 == 1) {
			t.Errorf("%s: decided at %v (%s), switched %d times, want %d", c.name, got, x.why, x.switches, c.switches)
		}
	}
}

// After a trial that was not worth it the next one waits, longer each time.
func TestSteeringWaits(t *testing.T) {
	x := &steering{}
	at := walk(x, 8, weather{lasts: 200 * time.Second, mbit: 940, losses: 14})
	if len(at) != 3 || x.filling || x.switches != 0 {
		t.Fatalf("in 200 s decided at %v, %d switches, want three times against", at, x.switches)
	}
	for i, want := range []time.Duration{30 * time.Second, 60 * time.Second} {
		if wait := at[i+1] - at[i]; wait < want || wait > want+2*time.Second {
			t.Errorf("pause %d was %v, want %v", i+1, wait, want)
		}
	}
}

// The figures that RFC 9438 and the Reno model give for 1 Gbit/s.
func TestAffordable(t *testing.T) {
	for _, c := range []struct {
		rtt   time.Duration
		conns int
		want  float64
	}{
		{10 * time.Millisecond, 8, 4.9e-3},
		{50 * time.Millisecond, 8, 1.97e-4},
		{100 * time.Millisecond, 8, 1.10e-4},
		{200 * time.Millisecond, 8, 8.8e-5},
		{200 * time.Millisecond, 16, 2.2e-4},
	} {
		got := affordable(125e6, look{base: c.rtt, segment: 8948, conns: c.conns})
		if math.Abs(got-c.want) > 0.03*c.want {
			t.Errorf("%v, %d connections: %.3g, want %.3g", c.rtt, c.conns, got, c.want)
		}
	}
}
