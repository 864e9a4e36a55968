package agent

import (
	"testing"
	"time"
)

// TestWindow checks that the window follows the rate at which the end host reads, and never exceeds
// its bound.
func TestWindow(t *testing.T) {
	const rtt = 100 * time.Millisecond
	at := time.Unix(1000, 0)
	run := func(w *window, perTrip ...uint64) int {
		consumed := uint64(0)
		w.note(consumed, at)
		for i, n := range perTrip {
			consumed += n
			w.note(consumed, at.Add(time.Duration(i+1)*rtt))
		}
		return w.size
	}
	fresh := func() *window {
		return &window{size: 1 << 20, most: 64 << 20, rtt: func() time.Duration { return rtt }}
	}
	for _, c := range []struct {
		name  string
		trips []uint64
		want  int
	}{
		{"nothing moves", []uint64{0, 0}, 1 << 20},
		{"a slow reader", []uint64{10_000, 10_000, 10_000}, 1 << 20},
		{"steady", []uint64{1 << 20, 1 << 20}, 8 << 20},
		{"growing", []uint64{1 << 20, 2 << 20, 4 << 20}, 32 << 20},
		{"a bound", []uint64{100 << 20}, 64 << 20},
		{"it does not shrink", []uint64{2 << 20, 0, 0}, 16 << 20},
	} {
		if got := run(fresh(), c.trips...); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	const most = 16
	for _, c := range []struct {
		name string
		path path
		want int
	}{
		{"local", path{rtt: 100 * time.Microsecond, congestion: "bbr", buffer: 128 << 20}, 2},
		{"bbr with large buffers", path{rtt: 100 * time.Millisecond, congestion: "bbr", buffer: 128 << 20}, 2},
		{"bbr on a fast path", path{rtt: 100 * time.Millisecond, rate: 1e9, congestion: "bbr", buffer: 64 << 20}, 4},
		{"bbr with small buffers", path{rtt: 100 * time.Millisecond, congestion: "bbr", buffer: 1 << 20}, most},
		{"cubic without loss", path{rtt: 100 * time.Millisecond, congestion: "cubic", buffer: 128 << 20}, 8},
		{"cubic with loss", path{rtt: 100 * time.Millisecond, loss: 1e-4, congestion: "cubic", buffer: 128 << 20}, most},
	} {
		n, why := chooseConns(c.path, most)
		if n != c.want || why == "" {
			t.Errorf("%s: %d (%s), want %d", c.name, n, why, c.want)
		}
	}
}

func TestPickCongestion(t *testing.T) {
	c := congestion{long: "bbr", local: "cubic"}
	for _, x := range []struct {
		rtt  time.Duration
		loss float64
		want string
	}{{0, 0, "bbr"}, {100 * time.Microsecond, 0, "cubic"}, {100 * time.Microsecond, 0.01, "bbr"}, {50 * time.Millisecond, 0, "bbr"}} {
		if got := c.choose(x.rtt, x.loss); got != x.want {
			t.Errorf("%v, loss %v: %s, want %s", x.rtt, x.loss, got, x.want)
		}
	}
}
