package mobile

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/device"
	"github.com/sluice-net/sluice/handover/mobile/fake"
	"github.com/sluice-net/sluice/handover/mobile/lease"
	"github.com/sluice-net/sluice/handover/mobile/policy"
	"github.com/sluice-net/sluice/openflow"
)

// world is a device with two interfaces and a network around it, by a fake clock.
type world struct {
	t    *testing.T
	d    *Daemon
	net  *fake.Network
	path *fake.Datapath
	seen int // of its uses
	wire map[string]*fake.Wire

	mu         sync.Mutex
	links      map[string]device.Link
	report     func(device.Link)
	configured []string
	neighbour  openflow.MAC
	radios     map[string]device.Radio
	stop       context.CancelFunc
	done       chan error
}

func (w *world) watch(ctx context.Context, names []string, report func(device.Link)) error {
	w.mu.Lock()
	w.report = report
	var first []device.Link
	for _, name := range names {
		l := w.links[name]
		l.Name = name
		first = append(first, l)
	}
	w.mu.Unlock()
	for _, l := range first {
		report(l)
	}
	<-ctx.Done()
	return nil
}

func (w *world) adopt(string) error  { return nil }
func (w *world) forget(string) error { return nil }

func (w *world) radio(name string, _ int) (device.Radio, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.radios[name]
	return r, ok
}

func (w *world) configure(l lease.Lease) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.configured = append(w.configured, l.Address.String())
	return nil
}

func (w *world) unconfigure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.configured = append(w.configured, "none")
	return nil
}

func (w *world) neighbourIs() openflow.MAC {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.neighbour
}

func (w *world) setRadio(name string, r device.Radio) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.radios[name] = r
}

type worldSystem struct{ *world }

func (w worldSystem) neighbour(_ netip.Addr, mac openflow.MAC) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.world.neighbour = mac
	return nil
}

func (w worldSystem) dhcp(index int) (conn, error) { return w.open(index) }
func (w worldSystem) arp(index int) (conn, error)  { return w.open(index) }

func (w *world) open(index int) (conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, l := range w.links {
		if l.Index == index && l.Carrier {
			return w.wire[name].Open(), nil
		}
	}
	return nil, fmt.Errorf("interface %d is down", index)
}

// newWorld makes a device with links a and b, both up.
func newWorld(t *testing.T, edit func(*Config)) *world {
	w := &world{
		t: t, net: fake.NewNetwork("10.8.0.10/24"), path: &fake.Datapath{Merging: true},
		wire: map[string]*fake.Wire{}, links: map[string]device.Link{}, radios: map[string]device.Radio{}, done: make(chan error, 1),
	}
	cfg := Config{
		VNI: "v", VNIMAC: openflow.MAC{2, 0, 0, 0, 0, 0xff}, StateDir: t.TempDir(),
		Interfaces: []Interface{{Name: "a", Cost: 1}, {Name: "b", Cost: 5}},
		Overlap:    300 * time.Millisecond, Probe: Probe{Interval: time.Second, Window: 10},
		Policy:        policy.Rules{Criteria: []policy.Criterion{policy.Cost}, Dwell: 2 * time.Second, Hold: 5 * time.Second, MaxLoss: 0.5},
		AttachTimeout: 8 * time.Second,
	}
	if edit != nil {
		edit(&cfg)
	}
	cfg = cfg.withDefaults()
	for n, i := range cfg.Interfaces {
		w.wire[i.Name] = fake.NewWire(w.net.At(i.Name))
		w.wire[i.Name].SetGateway(w.net.Gateway())
		w.links[i.Name] = device.Link{
			Name: i.Name, Index: n + 1, MAC: openflow.MAC{2, 0, 0, 0, 0, byte(n + 1)}, Present: true, Up: true, Carrier: true, Flaps: 1,
		}
	}
	w.d = newDaemon(cfg, worldSystem{w}, w.path)
	return w
}

// start runs the daemon until the test ends, and lets it come to rest.
func (w *world) start() *world {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.done <- w.d.run(ctx, nil) }()
	w.t.Cleanup(w.end)
	return w.pass(100 * time.Millisecond)
}

func (w *world) end() {
	w.stop()
	if err, ok := <-w.done; ok && err != nil {
		w.t.Error(err)
	}
	close(w.done)
}

// pass lets time pass.
func (w *world) pass(d time.Duration) *world {
	<-time.After(d)
	synctest.Wait()
	return w
}

// link changes a link.
func (w *world) link(name string, edit func(*device.Link)) *world {
	w.mu.Lock()
	l := w.links[name]
	edit(&l)
	w.links[name] = l
	report := w.report
	w.mu.Unlock()
	report(l)
	synctest.Wait()
	return w
}

func (w *world) carrier(name string, up bool) *world {
	return w.link(name, func(l *device.Link) { l.Carrier = up; l.Flaps++ })
}

// uses lists what the datapath was told since the last call.
func (w *world) uses(want ...string) {
	w.t.Helper()
	var got []string
	for _, u := range w.path.Uses() {
		got = append(got, u.String())
	}
	fresh := got[w.seen:]
	w.seen = len(got)
	if !slices.Equal(fresh, want) {
		w.t.Errorf("the datapath was told %v, want %v", fresh, want)
	}
}

func (w *world) asked(want ...string) {
	w.t.Helper()
	if got := w.net.Log(); !slices.Equal(got, want) {
		w.t.Errorf("the network was asked %v, want %v", got, want)
	}
}

func (w *world) status() Status {
	w.t.Helper()
	s, err := w.d.Status(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) active(want string) {
	w.t.Helper()
	if s := w.status(); s.Active != want {
		w.t.Errorf("%q is in use, want %q; moves %+v", s.Active, want, s.Moves)
	}
}

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
		// Listens to both before it asks, sends by the new one after the answer.
		w.uses("a<[a b]", "b<[b a]")
		w.pass(299 * time.Millisecond)
		w.uses()
		w.pass(2 * time.Millisecond)
		w.uses("b<[b]")
		w.asked("REQUEST at b")
		w.pass(time.Minute)
		w.active("b")
	})
}

func TestDatapathThatDoesNotMerge(t *testing.T) {
	for _, c := range []struct {
		listen Listen
		want   []string
	}{
		{ListenAuto, []string{"b<[b]"}},
		{ListenOne, []string{"b<[b]"}},
		{ListenBoth, []string{"a<[a b]", "b<[b a]", "b<[b]"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(c2 *Config) { c2.Listen = c.listen })
			w.path.Merging = false
			w.start()
			w.uses("a<[a]")
			if _, err := w.d.MoveTo(context.Background(), "b", "test", -1); err != nil {
				t.Error(err)
			}
			w.pass(time.Second)
			w.uses(c.want...)
		})
	}
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
		// The cable is moved so fast that only the count of changes tells.
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

func TestDeadPathIsFoundByProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil).start()
		w.pass(10 * time.Second)
		if s := w.status().Interfaces[0]; s.Probes != 10 || s.Loss != 0 || s.RTT != 2*time.Millisecond {
			t.Errorf("%+v", s)
		}
		w.wire["a"].Cut(true)
		w.pass(7 * time.Second)
		w.active("b")
		if m := w.status().Moves; !strings.Contains(m[len(m)-1].Why, "probes") {
			t.Errorf("%+v", m[len(m)-1])
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
		w.uses("a<[a b]", "a<[a]", "a<[a]")
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
		// It comes back as another one.
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
		// The server changes its mind: the next renewal is refused, another address follows.
		w.net.SetAddress("10.8.0.20/24")
		w.pass(51 * time.Second)
		w.asked("REQUEST at a", "DISCOVER at a", "REQUEST at a")
		if want := []string{"10.8.0.10/24", "10.8.0.10/24", "none", "10.8.0.20/24"}; !slices.Equal(w.configured, want) {
			t.Errorf("configured %v", w.configured)
		}
		// Nobody answers any more: the address goes with the lease.
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
		w.pass(2 * time.Second)
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

// A network that does not know the device is not worth its connections.
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
		// With nothing to lose it will do, and by command anyhow.
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
