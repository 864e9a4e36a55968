package mobile

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/services/handover/mobile/device"
)

func TestSilentInterfaceIsLeft(t *testing.T) {
	for _, c := range []struct {
		name      string
		sent, got uint64 // each millisecond
		after     uint64 // still received when the path is dead
		limit     time.Duration
	}{
		{"packets come", 0, 1, 0, 100 * time.Millisecond},
		{"packets come on", 0, 1, 1, 160 * time.Millisecond},
		{"packets go", 1, 0, 0, 70 * time.Millisecond},
		{"packets go, and come on", 1, 1, 1, 160 * time.Millisecond},
		{"nothing runs", 0, 0, 0, 160 * time.Millisecond},
	} {
		for _, edge := range []bool{false, true} { // whether a host there continues to answer ARP
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(c *Config) { c.Probe = Probe{Interval: 80 * time.Millisecond, Window: 50} }).start()
				run := func(d time.Duration, sent, got uint64) {
					for range d / time.Millisecond {
						w.path.Carry(sent, got)
						w.pass(time.Millisecond)
					}
				}
				run(10*time.Second, c.sent, c.got)
				if s := w.status().Interfaces[0]; s.Loss != 0 || s.RTT != 2*time.Millisecond || s.Silent {
					t.Errorf("%s: %+v", c.name, s)
				}
				if edge {
					w.wire["a"].Edge(true)
				} else {
					w.wire["a"].Cut(true)
				}
				run(c.limit, c.sent, c.after)
				w.active("b")
				if again := w.path.SentAgain(); !slices.Equal(again, []string{"b"}) {
					t.Errorf("%s: what connections sent last was sent again by %v", c.name, again)
				}
				if m := w.status().Moves; !strings.Contains(m[len(m)-1].Why, "a is silent") {
					t.Errorf("%s: %+v", c.name, m[len(m)-1])
				}
				// The device does not go back because a host at its edge answers.
				run(4*time.Second, 0, 0)
				w.active("b")
			})
		}
	}
}

// The kernel may delay the event of a moved cable for a second: a device under traffic reads the
// link itself.
func TestLinkEventIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Interfaces = c.Interfaces[:1] }).start()
		old := w.heldBack("a", func(*device.Link) {})
		w.asked("DISCOVER at a", "REQUEST at a")
		run := func(d time.Duration, got uint64) {
			for range d / time.Millisecond {
				w.path.Carry(0, got)
				w.pass(time.Millisecond)
			}
		}
		run(2*time.Second, 1)
		w.wire["a"].Cut(true)
		w.heldBack("a", func(l *device.Link) { l.Carrier = false; l.Flaps++ })
		run(75*time.Millisecond, 0)
		w.wire["a"].Cut(false)
		last := w.heldBack("a", func(l *device.Link) { l.Carrier = true; l.Flaps++ })
		run(25*time.Millisecond, 0)
		w.asked("REQUEST at a")
		// The events come in the end, with old or known states.
		for _, l := range []device.Link{old, last} {
			w.report(l)
		}
		run(2*time.Second, 1)
		w.asked()

		// A cable that was moved in an instant.
		w.wire["a"].Cut(true)
		w.heldBack("a", func(l *device.Link) { l.Flaps += 2 })
		run(40*time.Millisecond, 0)
		w.wire["a"].Cut(false)
		run(110*time.Millisecond, 0)
		w.asked("REQUEST at a")
	})
}

// A device that receives nothing by any interface stays where it is, and moves to the first that
// answers.
func TestEverythingIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start().pass(5 * time.Second)
		w.wire["a"].Cut(true)
		w.wire["b"].Cut(true)
		w.pass(20 * time.Second)
		w.active("a")
		w.wire["b"].Cut(false)
		w.pass(2 * time.Second)
		w.active("b")
		w.wire["a"].Cut(false) // the better one comes back
		w.pass(20 * time.Second)
		w.active("a")
	})
}

// A requested interface is left while it is silent.
func TestSilentWish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		if _, err := w.d.MoveTo(context.Background(), "b", "test", -1); err != nil {
			t.Error(err)
		}
		w.pass(5 * time.Second).wire["b"].Cut(true)
		w.pass(2 * time.Second)
		w.active("a")
		w.pass(20 * time.Second).wire["b"].Cut(false)
		w.pass(3 * time.Second)
		w.active("b")
	})
}

// diesOften lets radio a die and come back so often that it is barred for 16 s, and leaves the
// device at b with a dead. It returns when a was last barred.
func (w *world) diesOften() time.Time {
	w.t.Helper()
	for range 5 {
		if _, err := w.d.MoveTo(context.Background(), "a", "test", 0); err != nil {
			w.t.Error(err)
		}
		w.pass(2 * time.Second).wire["a"].Cut(true)
		w.pass(500 * time.Millisecond).active("b")
		w.wire["a"].Cut(false)
		w.pass(2 * time.Second)
	}
	s := w.status()
	if i := s.Interfaces[0]; i.Barred == "" || time.Until(i.Until) < 10*time.Second {
		w.t.Errorf("it is not barred for long: %+v", i)
	}
	return s.Moves[len(s.Moves)-1].At
}

// A barred interface is better than none: when the other one loses its link, or dies, an interface
// that answers again is used at once.
func TestBarredIsTheLastResort(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(w *world)
	}{
		{"the other loses its link", func(w *world) { w.carrier("b", false) }},
		{"the other dies", func(w *world) { w.wire["b"].Cut(true) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(c *Config) { c.Probe.Interval = 80 * time.Millisecond }).start()
				w.diesOften()
				c.lose(w)
				w.pass(300 * time.Millisecond).active("a")
			})
		})
	}
}

// A back-off ends early when probes are answered for a while.
func TestAnswersEndABar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Probe.Interval = 80 * time.Millisecond }).start()
		barred := w.diesOften()
		w.pass(time.Until(barred.Add(backoffAnswered + spareProbes)))
		if i := w.status().Interfaces[0]; i.Barred != "" {
			t.Errorf("it has answered for 5 s and is barred until %v", i.Until)
		}
	})
}

// spareProbes is longer than the time between two probes of an interface not in use.
const spareProbes = 6 * time.Second
