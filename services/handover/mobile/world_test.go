package mobile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/device"
	"github.com/sluice-net/sluice/services/handover/mobile/fake"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
	"github.com/sluice-net/sluice/services/handover/mobile/policy"
)

// world is a device with two interfaces and a network around it, with a fake clock.
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
	restored   []string // what was compared with its declaration
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

func (w worldSystem) link(name string) (device.Link, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.links[name], nil
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

func (w *world) restoreLease(l lease.Lease) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restored = append(w.restored, l.Address.String())
	return 2, nil
}

func (w *world) restoreAdopted(name string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restored = append(w.restored, name)
	return 1, nil
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

func (w worldSystem) dhcp(index int) (conn, error)   { return w.open(index) }
func (w worldSystem) probes(index int) (conn, error) { return w.open(index) }

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

// newWorld returns a device with links a and b, both up.
func newWorld(t *testing.T, edit func(*Config)) *world {
	w := &world{
		t: t, net: fake.NewNetwork("10.8.0.10/24"), path: &fake.Datapath{},
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

// start runs the daemon until the test ends, and waits until it is idle.
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
	pause.For(d, "the simulation's clock")
	synctest.Wait()
	return w
}

// link changes a link.
func (w *world) link(name string, edit func(*device.Link)) *world {
	l := w.heldBack(name, edit)
	w.mu.Lock()
	report := w.report
	w.mu.Unlock()
	report(l)
	synctest.Wait()
	return w
}

// heldBack changes a link without an event of the kernel.
func (w *world) heldBack(name string, edit func(*device.Link)) device.Link {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.links[name]
	edit(&l)
	w.links[name] = l
	return l
}

func (w *world) carrier(name string, up bool) *world {
	return w.link(name, func(l *device.Link) { l.Carrier = up; l.Flaps++ })
}

// uses checks the calls of the datapath's Use since the last call.
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
