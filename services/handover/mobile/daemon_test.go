package mobile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/device"
	"github.com/sluice-net/sluice/services/handover/mobile/fake"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
)

func TestMakeBeforeBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		w.uses("a<[a]")
		w.asked("DISCOVER at a", "REQUEST at a")
		if !slices.Equal(w.configured, []string{"10.8.0.10/24"}) {
			t.Errorf("configured %v", w.configured)
		}
		m, err := w.d.MoveTo(context.Background(), "b", "test", -1)
		if err != nil || !m.MakeBeforeBreak || m.From != "a" || m.To != "b" || m.Lease != 2*time.Millisecond || m.Address != "10.8.0.10" {
			t.Errorf("%+v, %v", m, err)
		}
		w.pass(0)
		// The datapath listens to both interfaces before the request, and sends by the new one
		// after the answer.
		w.uses("a<[a b]", "b<[b a]")
		w.pass(299 * time.Millisecond)
		w.uses()
		w.pass(2 * time.Millisecond)
		w.uses("b<[b]")
		w.asked("REQUEST at b")
		if again := w.path.SentAgain(); len(again) > 0 {
			t.Errorf("nothing was lost, and sent again by %v", again)
		}
		w.pass(time.Minute)
		w.active("b")
	})
}

func TestBreakBeforeMake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Interfaces = c.Interfaces[:1] }).start()
		w.asked("DISCOVER at a", "REQUEST at a")
		w.uses("a<[a]")
		w.carrier("a", false).pass(time.Minute)
		w.active("a")
		w.carrier("a", true).pass(10 * time.Millisecond)
		w.asked("REQUEST at a")
		w.uses("a<[a]")
		// The cable is moved so fast that only the count of changes shows it.
		w.link("a", func(l *device.Link) { l.Flaps += 2 }).pass(10 * time.Millisecond)
		w.asked("REQUEST at a")
		if s := w.status(); s.Counters.Moves != 3 || s.Counters.AddressChanges != 0 {
			t.Errorf("%+v", s.Counters)
		}
	})
}

func TestLostLinkIsLeftAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		w.uses("a<[a]")
		w.asked("DISCOVER at a", "REQUEST at a")
		w.carrier("a", false).pass(3 * time.Millisecond)
		w.active("b")
		w.uses("b<[b]")
		w.asked("REQUEST at b")
		// Back to the cheaper one: after it was there for a while, and not soon after the move.
		w.carrier("a", true).pass(4 * time.Second)
		w.active("b")
		w.pass(2 * time.Second)
		w.active("a")
		w.asked("REQUEST at a")
		w.uses("b<[b a]", "a<[a b]", "a<[a]")
	})
}

func TestNetworkThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		w.uses("a<[a]")
		w.wire["b"].Cut(true)
		_, err := w.d.MoveTo(context.Background(), "b", "test", 0)
		if !errors.Is(err, lease.ErrSilence) {
			t.Errorf("error %v", err)
		}
		w.pass(time.Millisecond)
		w.active("a")
		w.uses("a<[a b]", "a<[a]")
		if s := w.status(); s.Interfaces[1].Barred == "" || s.Counters.Failed != 1 || len(s.Moves) != 2 || s.Moves[1].Error == "" {
			t.Errorf("%+v", s)
		}
	})
}

func TestWishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		if _, err := w.d.MoveTo(context.Background(), "b", "test", 20*time.Second); err != nil {
			t.Error(err)
		}
		w.pass(15 * time.Second)
		w.active("b")
		w.pass(10 * time.Second) // 20 s, and 2 s in which a must stay better
		w.active("a")
		if _, err := w.d.MoveTo(context.Background(), "b", "test", -1); err != nil {
			t.Error(err)
		}
		w.pass(time.Hour / 4)
		w.active("b")
		w.carrier("b", false).pass(10 * time.Millisecond)
		w.active("a")
		w.carrier("b", true).pass(10 * time.Millisecond)
		w.active("b")
		if err := w.d.Auto(context.Background()); err != nil {
			t.Error(err)
		}
		w.pass(10 * time.Second)
		w.active("a")
		for name, want := range map[string]error{"x": ErrUnknown, "b": ErrNoLink} {
			w.carrier("b", false)
			if _, err := w.d.MoveTo(context.Background(), name, "test", -1); !errors.Is(err, want) {
				t.Errorf("move to %s: %v", name, err)
			}
		}
	})
}

func TestMoveReplacesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		w.uses("a<[a]")
		w.wire["b"].Cut(true)
		first := make(chan error, 1)
		go func() {
			_, err := w.d.MoveTo(context.Background(), "b", "test", -1)
			first <- err
		}()
		w.pass(time.Second)
		if _, err := w.d.MoveTo(context.Background(), "a", "test", -1); err != nil {
			t.Error(err)
		}
		if err := <-first; !errors.Is(err, ErrReplaced) {
			t.Errorf("the first move: %v", err)
		}
		w.pass(time.Minute)
		w.active("a")
		w.uses("a<[a b]", "a<[a b]", "a<[a b]", "a<[a]")
	})
}

// Whatever the device does next, it receives packets in flight to the place that it has just left,
// for as long as after any move.
func TestListensToAllThatWereJustLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Interfaces = append(c.Interfaces, Interface{Name: "c", Cost: 9}) }).start()
		w.uses("a<[a]")
		move := func(to string) {
			t.Helper()
			if _, err := w.d.MoveTo(context.Background(), to, "test", -1); err != nil {
				t.Error(err)
			}
		}
		move("b")
		w.pass(100 * time.Millisecond)
		move("c")
		w.pass(100 * time.Millisecond)
		w.uses("a<[a b]", "b<[b a]", "b<[b a c]", "c<[c a b]")
		move("b")
		w.pass(time.Minute)
		w.uses("c<[c a b]", "b<[b a c]", "b<[b c]", "b<[b]")
	})
}

func TestTargetVanishesDuringTheMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		w.wire["b"].Cut(true)
		first := make(chan error, 1)
		go func() {
			_, err := w.d.MoveTo(context.Background(), "b", "test", -1)
			first <- err
		}()
		w.pass(time.Second)
		w.link("b", func(l *device.Link) { *l = device.Link{Name: "b"} })
		if err := <-first; !errors.Is(err, ErrNoLink) {
			t.Errorf("the move: %v", err)
		}
		if got := w.path.Attached(); len(got) != 1 || got[0].Name != "a" {
			t.Errorf("attached %v", got)
		}
		w.active("a")
		// The interface comes back as another one.
		w.wire["b"].Cut(false)
		w.link("b", func(l *device.Link) {
			*l = device.Link{Name: "b", Index: 9, MAC: openflow.MAC{2, 0, 0, 0, 0, 9}, Present: true, Up: true, Carrier: true, Flaps: 1}
		}).pass(10 * time.Millisecond)
		w.active("b") // it was asked for, and still is
		if got := w.path.Attached(); len(got) != 2 || got[1].MAC[5] != 9 {
			t.Errorf("attached %v", got)
		}
	})
}

func TestLeaseIsRenewedAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.net.Lasts = 100 * time.Second
		w.start()
		w.asked("DISCOVER at a", "REQUEST at a")
		w.pass(51 * time.Second)
		w.asked("REQUEST at a")
		if s := w.status(); s.Counters.Renewals != 1 || time.Until(s.Lease.Expires) < 99*time.Second-2*time.Second {
			t.Errorf("%+v", s.Lease)
		}
		// The server refuses the next renewal and grants another address.
		w.net.SetAddress("10.8.0.20/24")
		w.pass(51 * time.Second)
		w.asked("REQUEST at a", "DISCOVER at a", "REQUEST at a")
		if want := []string{"10.8.0.10/24", "10.8.0.10/24", "none", "10.8.0.20/24"}; !slices.Equal(w.configured, want) {
			t.Errorf("configured %v", w.configured)
		}
		// Nobody answers any more: the address is removed when the lease expires.
		w.net.Refuse(true)
		w.pass(101 * time.Second)
		if last := w.configured[len(w.configured)-1]; last != "none" {
			t.Errorf("configured %v", w.configured)
		}
		w.net.Refuse(false)
		w.pass(31 * time.Second)
		if last := w.configured[len(w.configured)-1]; last != "10.8.0.20/24" {
			t.Errorf("configured %v", w.configured)
		}
	})
}

func TestLeaseSurvivesTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		w.asked("DISCOVER at a", "REQUEST at a")
		w.stop()
		synctest.Wait()
		again := newWorld(t, func(c *Config) { c.StateDir, c.Release = w.d.cfg.StateDir, true })
		again.start()
		again.asked("REQUEST at a")
		again.stop()
		again.pass(10 * time.Millisecond)
		again.asked("RELEASE at a")
		third := newWorld(t, func(c *Config) { c.StateDir = w.d.cfg.StateDir }).start()
		third.asked("DISCOVER at a", "REQUEST at a")
	})
}

func TestRoaming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Interfaces = c.Interfaces[:1] })
		w.setRadio("a", device.Radio{Signal: -50, AP: openflow.MAC{1}})
		w.start().pass(2 * time.Second)
		w.asked("DISCOVER at a", "REQUEST at a")
		w.setRadio("a", device.Radio{Signal: -40, AP: openflow.MAC{2}})
		w.pass(time.Second + 10*time.Millisecond)
		w.asked("REQUEST at a")
		if s := w.status().Interfaces[0]; s.Signal != -40 || s.AP != (openflow.MAC{2}) {
			t.Errorf("%+v", s)
		}
	})
}

func TestGatewayOfTheNewNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		other := openflow.MAC{2, 9, 9, 9, 9, 9}
		gateway, mac := w.net.Gateway()
		w.wire["b"].SetGateway(gateway, other)
		w.pass(6 * time.Second) // an interface that is not in use is seldom probed
		if got := w.neighbourIs(); got != mac {
			t.Errorf("the gateway is at %v, want %v", got, mac)
		}
		if _, err := w.d.MoveTo(context.Background(), "b", "test", -1); err != nil {
			t.Error(err)
		}
		w.pass(0)
		if got := w.neighbourIs(); got != other {
			t.Errorf("the gateway is at %v, want %v", got, other)
		}
	})
}

func TestDatapathRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		w.path.Refuse(errors.New("no"))
		if _, err := w.d.MoveTo(context.Background(), "b", "test", 0); err == nil || !strings.Contains(err.Error(), "datapath") {
			t.Errorf("error %v", err)
		}
		w.active("a")
		w.path.Refuse(nil)
		w.pass(2 * time.Second)
		if _, err := w.d.MoveTo(context.Background(), "b", "test", -1); err != nil {
			t.Error(err)
		}
		w.active("b")
	})
}

// The device does not give up its connections for a network that does not know it.
func TestStrangeNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Policy.Hold = time.Second })
		strange := fake.NewNetwork("192.168.1.5/24")
		w.wire["b"].SetAnswer(strange.At("cafe"))
		w.start()
		w.asked("DISCOVER at a", "REQUEST at a")
		w.wire["a"].Cut(true) // its gateway is lost, its link is not
		w.pass(20 * time.Second)
		w.active("a")
		if s := w.status(); !strings.Contains(s.Interfaces[1].Barred, "192.168.1.5") || s.VNI.Address.String() != "10.8.0.10/24" {
			t.Errorf("%+v", s)
		}
		// Without a working network it joins that one, and by command in any case.
		w.carrier("a", false).pass(31 * time.Second)
		w.active("b")
		if s := w.status(); s.VNI.Address.String() != "192.168.1.5/24" || s.Counters.AddressChanges != 1 {
			t.Errorf("%+v", s)
		}
		w.wire["a"].Cut(false)
		w.carrier("a", true).pass(10 * time.Second)
		w.active("b")
		if m, err := w.d.MoveTo(context.Background(), "a", "test", -1); err != nil || m.Address != "10.8.0.10" {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// The virtual interface follows a radio whose MTU is lowered at run time.
func TestMTUChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		before := w.path.Fitted()
		w.link("b", func(l *device.Link) { l.MTU = 1400 })
		if n := w.path.Fitted() - before; n != 1 || len(w.configured) != 2 {
			t.Errorf("fitted %d times, configured %v", n, w.configured)
		}
		w.link("b", func(l *device.Link) { l.Up = false })
		if n := w.path.Fitted() - before; n != 1 {
			t.Errorf("fitted %d times", n)
		}
	})
}
