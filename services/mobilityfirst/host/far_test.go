package host

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
	"github.com/sluice-net/sluice/services/mobilityfirst/udplink"
)

// directory is a name service in memory.
type directory struct {
	mu      sync.Mutex
	at      map[frame.GUID][]netip.AddrPort
	numbers map[frame.GUID]uint64
	changed []func(frame.GUID)
}

func (d *directory) Addresses(_ context.Context, name frame.GUID) ([]netip.AddrPort, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at[name] == nil {
		return nil, errors.New("not known")
	}
	return d.at[name], nil
}

func (d *directory) Publish(_ context.Context, key ed25519.PrivateKey, number uint64, _ time.Time, at ...netip.AddrPort) error {
	d.mu.Lock()
	changed, newer := d.changed, number > d.numbers[record.NameOfOwner(key)]
	if newer {
		d.at[record.NameOfOwner(key)], d.numbers[record.NameOfOwner(key)] = at, number
	}
	d.mu.Unlock()
	if !newer {
		return errors.New("older than what is known")
	}
	for _, f := range changed {
		f(record.NameOfOwner(key))
	}
	return nil
}

func (d *directory) Changed(f func(frame.GUID)) { d.changed = append(d.changed, f) }

func newDirectory() *directory {
	return &directory{at: map[frame.GUID][]netip.AddrPort{}, numbers: map[frame.GUID]uint64{}}
}

// where returns the address of a name, or nothing.
func (d *directory) where(name frame.GUID) []netip.AddrPort {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[name]
}

// roamer moves a host to another address.
type roamer struct {
	stop func() // the host
	mu   sync.Mutex
	at   netip.AddrPort
}

func (r *roamer) addr() (netip.AddrPort, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at, nil
}

func (r *roamer) move(to netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = to
}

// free returns an unused address of this machine.
func free(t *testing.T, ip string) netip.AddrPort {
	t.Helper()
	for port := uint16(30_000); port < 60_000; port += 2 {
		at := netip.AddrPortFrom(netip.MustParseAddr(ip), port)
		if s, err := udplink.Open(at); err == nil {
			s.Close()
			return at
		}
	}
	t.Fatal("no port is free")
	return netip.AddrPort{}
}

// runFar runs a host at an address, and on a segment if that is not nil.
func runFar(t *testing.T, d *directory, ip string, on *segment) (*Host, *roamer) {
	t.Helper()
	r := &roamer{at: free(t, ip)}
	o := Options{Keep: 10 * time.Second, Far: &Far{Addr: r.addr, Names: d}}
	if on != nil {
		o.Interfaces = []string{"eth0"}
		o.Open = func(string) (*Interface, error) { return on.plug(r.at.Addr().As4()[3], 1500), nil }
	}
	h := New(o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() { h.Run(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(r.stop)
	return h, r
}

// soon waits until a condition holds.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
		pause.For(5*time.Millisecond, what)
	}
}

// Names on different links reach each other at the addresses of the name service, even after one of
// them has moved during a transfer; a detached name has no address.
func TestFar(t *testing.T) {
	d := newDirectory()
	a, _ := runFar(t, d, "127.0.0.1", nil)
	b, there := runFar(t, d, "127.0.0.2", nil)
	from, to := attach(t, a, 1), attach(t, b, 2)
	soon(t, "both names are published", func() bool { return len(d.where(from.Name)) == 1 && len(d.where(to.Name)) == 1 })
	for i := range 30 {
		if i == 10 {
			at := free(t, "127.0.0.3")
			there.move(at)
		}
		want := random(i*20_000, uint64(i))
		became := send(t, from, to.Name, want)
		if r := receive(t, to); r.From != from.Name || !bytes.Equal(r.Payload, want) {
			t.Fatalf("chunk %d: %d bytes from %v", i, len(r.Payload), r.From)
		}
		if err := <-became; err != nil {
			t.Error(err)
		}
		if i == 10 {
			soon(t, "the name is published where it is now", func() bool { x := d.where(to.Name); return len(x) == 1 && x[0].Addr().String() == "127.0.0.3" })
		}
	}
	published := to.publication
	to.Close()
	soon(t, "the name is nowhere", func() bool { return len(d.where(to.Name)) == 0 })
	if d.numbers[to.Name] != published+1 {
		t.Errorf("number %d, behind %d: another host's would be lost", d.numbers[to.Name], published)
	}
	if err := <-send(t, from, to.Name, nil); !errors.Is(err, ErrKept) {
		t.Error(err)
	}
}

// The names of a host that ends are withdrawn.
func TestFarEnds(t *testing.T) {
	d := newDirectory()
	h, r := runFar(t, d, "127.0.0.1", nil)
	var all []*Endpoint
	for i := range byte(20) {
		all = append(all, attach(t, h, i+1))
	}
	soon(t, "the names are published", func() bool {
		return !slices.ContainsFunc(all, func(e *Endpoint) bool { return len(d.where(e.Name)) == 0 })
	})
	r.stop()
	for _, e := range all {
		if at := d.where(e.Name); len(at) > 0 {
			t.Errorf("%v is at %v", e.Name, at)
		}
	}
}

// A host on a link is found there, and one that has left the link at its published address, during
// a stream.
func TestNearAndFar(t *testing.T) {
	d, on := newDirectory(), newSegment(0)
	a, _ := runFar(t, d, "127.0.0.1", on)
	b, _ := runFar(t, d, "127.0.0.2", on)
	from, to := attach(t, a, 1), attach(t, b, 2)
	near := func(h *Host) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.near()
	}
	soon(t, "the links are up, and names published", func() bool {
		return near(a) && near(b) && len(d.where(from.Name)) == 1 && len(d.where(to.Name)) == 1
	})
	over := func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.outgoing[streamKey{from: from.Name, to: to.Name}].path.link.name
	}
	for i := range 30 {
		if i == 10 {
			on.lose(1 << 30)
		}
		became := send(t, from, to.Name, random(10_000, uint64(i)))
		if i == 0 {
			a.far.nameMoved(to.Name) // as it is told of what was published just now
		}
		receive(t, to)
		if err := <-became; err != nil {
			t.Error(err)
		}
		if want := map[bool]string{true: "eth0", false: farLink}[i < 10]; over() != want {
			t.Errorf("chunk %d went by %s, want %s", i, over(), want)
		}
	}
}

// Far hosts are counted by their IPv4 addresses, whatever their ports, and use at most half of the
// memory and of the remembered names.
func TestFarIsBounded(t *testing.T) {
	h := New(Options{Far: &Far{Names: &directory{}}})
	now := time.Now()
	at := func(ip byte, port uint16) place {
		mac, err := udplink.MAC(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, ip}), port))
		if err != nil {
			t.Fatal(err)
		}
		return place{h.far.link, mac}
	}
	if h.memory.account(at(1, 2)) != h.memory.account(at(1, 4)) || h.memory.account(at(1, 2)) == h.memory.account(at(2, 2)) {
		t.Error("two ports of one address are counted apart, or two addresses together")
	}
	if one, _ := h.limits.find(at(1, 2), false, now); func() bool { other, _ := h.limits.find(at(1, 4), false, now); return other != one }() {
		t.Error("two ports of one address have limits apart")
	}
	taken := 0
	for ip := range byte(16) {
		for h.allocate(h.memory.account(at(ip+1, 2)), 1<<20, now) {
			taken += 1 << 20
		}
	}
	if taken != h.Memory/2 || !h.allocate(h.memory.account(place{h.links[0], broadcast}), 1<<20, now) {
		t.Errorf("far hosts have taken %d of %d", taken, h.Memory)
	}
	for i := range maxNeighbours {
		p := at(byte(i%200+1), uint16(2*(i/200+1)))
		hello := record.SignHello(newKey(byte(i)), 1, p.mac, 0)
		h.neighbours.learn(frame.GUID{byte(i), byte(i >> 8)}, &hello, p, 0, now)
	}
	if n := len(h.neighbours.byName); n > maxNeighbours/2 || n != h.neighbours.far {
		t.Errorf("%d names from afar are remembered, %d are counted", n, h.neighbours.far)
	}
}
