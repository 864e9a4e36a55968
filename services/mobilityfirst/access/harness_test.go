package access

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
	"github.com/sluice-net/sluice/services/mobilityfirst/mf1test"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for.
const patience = time.Minute

// mtu is that of the tests' Ethernet.
const mtu = 1500

// trouble is what an Ethernet does to frames, in percent of them.
type trouble struct{ lose, repeat, hold int }

// ether is an Ethernet in memory.
type ether struct {
	trouble
	mu    sync.Mutex
	rand  *rand.Rand
	ports map[openflow.MAC]*port
	held  []inFlight // frames that others overtake
}

// inFlight is a frame for a port.
type inFlight struct {
	to    *port
	frame []byte
}

func newEther(x trouble) *ether {
	return &ether{trouble: x, rand: rand.New(rand.NewPCG(1, 2)), ports: map[openflow.MAC]*port{}}
}

// port is where a host is on it. It implements host.Socket.
type port struct {
	ether  *ether
	mac    openflow.MAC
	came   chan []byte
	closed chan struct{}
	close  func()
}

// open is an interface with an Ethernet address on the Ethernet.
func (e *ether) open(mac openflow.MAC) *host.Interface {
	p := &port{ether: e, mac: mac, came: make(chan []byte, 1<<14), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ports[mac] = p
	return &host.Interface{MAC: mac, MTU: mtu, Socket: p}
}

func (p *port) AppendHeader(b []byte, to openflow.MAC, _ uint16) []byte {
	return binary.BigEndian.AppendUint16(append(append(b, to[:]...), p.mac[:]...), frame.EtherType)
}

// Send implements host.Socket.
func (p *port) Send(frames [][]byte) error {
	e := p.ether
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range frames {
		to := openflow.MAC(f)
		for mac, other := range e.ports {
			if other != p && (to.IsMulticast() || to == mac) {
				e.pass(inFlight{other, bytes.Clone(f)})
			}
		}
	}
	return nil
}

// pass has a frame arrive, or not, or twice, or behind some of the next.
func (e *ether) pass(f inFlight) {
	switch n := e.rand.IntN(100); {
	case n < e.lose:
	case n < e.lose+e.hold:
		e.held = append(e.held, f)
	case n < e.lose+e.hold+e.repeat:
		f.arrive()
		f.arrive()
	default:
		f.arrive()
	}
	if len(e.held) > 8 || len(e.held) > 0 && e.rand.IntN(4) == 0 {
		e.held[0].arrive()
		e.held = e.held[1:]
	}
}

func (f inFlight) arrive() {
	select {
	case f.to.came <- f.frame:
	default:
	}
}

// Receive implements host.Socket.
func (p *port) Receive(ctx context.Context) ([]rawlink.Frame, error) {
	select {
	case f := <-p.came:
		return []rawlink.Frame{{From: openflow.MAC(f[6:12]), Group: openflow.MAC(f).IsMulticast(), Payload: f[14:]}}, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close implements host.Socket.
func (p *port) Close() error {
	p.close()
	p.ether.mu.Lock()
	defer p.ether.mu.Unlock()
	if p.ether.ports[p.mac] == p {
		delete(p.ether.ports, p.mac)
	}
	return nil
}

// guidOf is one of the original release, which is no hash of a key.
func guidOf(n byte) frame.GUID { return frame.GUID{0: 0x11, 19: n, 16: 0x77} }

func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func macOf(n byte) openflow.MAC { return openflow.MAC{2, 0, 0, 0, 1, n} }

// world is an access router beside a host of ours, and an Ethernet on which hosts of the original release are.
type world struct {
	*testing.T
	*ether
	*Router
	socket string
	stop   func() // the router
	end    func() // the host of ours
}

// routerMAC is where the router is.
var routerMAC = openflow.MAC{2, 0, 0, 0, 0, 0xee}

// newWorld declares two hosts, 1 and 2, unless the options do. Tests with one run side by side: they wait most of the time.
func newWorld(t *testing.T, x trouble, o Options) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, ether: newEther(x)}
	w.socket = filepath.Join(t.TempDir(), "mf.sock")
	w.again()
	if o.Hosts == nil {
		o.Hosts = []Host{{GUID: guidOf(1), Key: keyOf(1)}, {GUID: guidOf(2), Key: keyOf(2)}}
	}
	o.Interfaces, o.Socket = []string{"lan"}, w.socket
	o.Open = func(string) (*host.Interface, error) { return w.open(routerMAC), nil }
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	w.run(o)
	return w
}

// again runs a host of ours, in place of the one before.
func (w *world) again() {
	w.Helper()
	if w.end != nil {
		w.end()
		if err := os.Remove(w.socket); err != nil {
			w.Fatal(err)
		}
	}
	socket, end := hosttest.Run(w.T, host.Options{})
	if err := os.Symlink(socket, w.socket); err != nil {
		w.Fatal(err)
	}
	w.end = end
}

// announced is how many chunks are being sent to a host.
func (w *world) announced(n byte) int {
	w.Router.mu.Lock()
	defer w.Router.mu.Unlock()
	return len(w.guests[guidOf(n).Short()].sending)
}

// run runs a router until it is stopped or the test ends.
func (w *world) run(o Options) {
	w.Helper()
	r, err := New(o)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var all sync.WaitGroup
	all.Go(func() { r.Run(ctx) })
	w.Router, w.stop = r, sync.OnceFunc(func() { cancel(); all.Wait() })
	w.Cleanup(w.stop)
}

// original is a host that has probed and associated.
func (w *world) original(n byte) (h *mf1test.Host, stop func()) {
	w.Helper()
	h, stop = mf1test.Run(w.T, w.open(macOf(n)), guidOf(n), 0)
	w.greet(h)
	return h, stop
}

func (w *world) greet(h *mf1test.Host) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if err := h.Probe(ctx); err != nil {
		w.Fatal(err)
	}
	if err := h.Associate(); err != nil {
		w.Fatal(err)
	}
}

// ours attaches a name at the host of ours.
func (w *world) ours(n byte) *hostapi.Client {
	w.Helper()
	return hosttest.Open(w.T, w.socket, keyOf(n))
}

// until waits for something.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !is(); pause.For(5*time.Millisecond, "something is waited for") {
		if time.Now().After(deadline) {
			w.Fatalf("waited in vain for %s: %+v", what, w.Counters())
		}
	}
}

// patiently is a context for what is to be done in a test.
func (w *world) patiently() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	w.Cleanup(cancel)
	return ctx
}
