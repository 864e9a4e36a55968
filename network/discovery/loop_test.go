package discovery

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// bridge is a foreign bridge between ports of ours, which forwards all but LLDP.
type bridge struct {
	t       *testing.T
	d       *Discovery
	now     time.Time
	ports   []topology.PortRef
	changes []Change
}

func newBridge(t *testing.T, o Options, ports ...topology.PortRef) *bridge {
	b := &bridge{t: t, now: t0, d: New(o, t0)}
	for _, at := range ports {
		b.now = b.now.Add(time.Minute)
		b.d.PortUp(at, openflow.MAC{2}, b.now)
	}
	return b
}

const loopHeader = 14

// run lets time pass, and carries loop probes between the bridge's ports.
func (b *bridge) run(d time.Duration) {
	b.t.Helper()
	for end := b.now.Add(d); b.now.Before(end); b.now = b.now.Add(50 * time.Millisecond) {
		due := b.d.Tick(b.now)
		b.changes = append(b.changes, due.Changes...)
		for _, from := range due.LoopProbe {
			frame := b.d.LoopProbe(nil, from, b.now)
			if slices.Contains(b.ports, from) {
				for _, to := range b.ports {
					if to != from || len(b.ports) == 1 {
						b.receive(frame, to)
					}
				}
			}
		}
	}
}

func (b *bridge) receive(frame []byte, to topology.PortRef) {
	b.t.Helper()
	changes, err := b.d.ReceiveLoop(frame[loopHeader:], to, b.now)
	if err != nil {
		b.t.Error(err)
	}
	b.changes = append(b.changes, changes...)
}

// count returns how often a kind of change has occurred at a port.
func (b *bridge) count(kind Kind, at topology.PortRef) (n int) {
	for _, c := range b.changes {
		if c.Kind == kind && c.Port == at {
			n++
		}
	}
	return n
}

// TestLoopBlocksTheNewerPort checks that of two ports which a foreign bridge connects the one is
// blocked that came up later, for as long as the loop exists, and that both are used afterwards.
func TestLoopBlocksTheNewerPort(t *testing.T) {
	old, young, bystander := ref(2, 1), ref(1, 1), ref(3, 1)
	b := newBridge(t, Options{}, bystander, old, young)
	b.run(time.Minute)
	if !b.d.IsEdge(old) || !b.d.IsEdge(young) {
		t.Fatal("the ports are no edge ports before there is a bridge")
	}
	b.ports = []topology.PortRef{old, young}
	b.run(5 * time.Minute)
	if got := b.d.Loops(); !slices.Equal(got, []Loop{{young, old}}) {
		t.Errorf("loops %v", got)
	}
	if b.d.IsEdge(young) || !b.d.IsEdge(old) || !b.d.IsEdge(bystander) || !slices.Equal(b.d.BlockedPorts(1), []uint32{1}) {
		t.Errorf("edge ports: young %v, old %v, bystander %v", b.d.IsEdge(young), b.d.IsEdge(old), b.d.IsEdge(bystander))
	}
	if n := b.count(LoopFound, young); n != 1 {
		t.Errorf("told %d times", n)
	}
	b.ports = nil
	b.run(2 * time.Minute)
	if !b.d.IsEdge(young) || len(b.d.Loops()) > 0 || b.count(LoopGone, young) != 1 {
		t.Errorf("after the loop: edge %v, %v, told %d times", b.d.IsEdge(young), b.d.Loops(), b.count(LoopGone, young))
	}
}

// TestNewCableNeverBecomesAnEdge checks that a port which a foreign bridge connects with another one is
// blocked before it becomes an edge port.
func TestNewCableNeverBecomesAnEdge(t *testing.T) {
	b := newBridge(t, Options{}, ref(1, 1))
	b.run(time.Minute)
	b.ports = []topology.PortRef{ref(1, 1), ref(2, 1)}
	b.d.PortUp(ref(2, 1), openflow.MAC{2}, b.now)
	b.run(time.Minute)
	if n := b.count(EdgeUp, ref(2, 1)); n > 0 || len(b.d.Loops()) != 1 {
		t.Errorf("it became an edge port %d times, loops %v", n, b.d.Loops())
	}
}

// TestNewLinkIsNoLoop checks that a link between two switches is not taken for a loop because its first
// link probe was lost, and that a port which was blocked nevertheless is used when the link is found.
func TestNewLinkIsNoLoop(t *testing.T) {
	a, c := ref(1, 1), ref(2, 1)
	d := New(Options{}, t0)
	d.PortUp(a, openflow.MAC{2}, t0)
	d.PortUp(c, openflow.MAC{2}, t0)
	now := t0
	send := func(from, to topology.PortRef) []Change {
		changes, err := d.ReceiveLoop(d.LoopProbe(nil, from, now)[loopHeader:], to, now)
		if err != nil {
			t.Fatal(err)
		}
		return changes
	}
	for range 3 { // at one time, in both directions
		if changes := append(send(a, c), send(c, a)...); len(changes) > 0 {
			t.Fatalf("blocked: %v", changes)
		}
	}
	now = now.Add(DefaultSettle / 4)
	if changes := send(a, c); len(changes) != 1 || changes[0].Kind != LoopFound {
		t.Fatalf("link probes do not arrive: %v", changes)
	}
	frame := d.Probe(nil, a, now)
	h, err := packet.Parse(frame)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := d.Receive(frame, &h, c, now, func(openflow.DatapathID) Control { return Control{} })
	if err != nil || len(changes) != 2 || changes[0].Kind != LoopGone || changes[1].Kind != LinkUp || len(d.Loops()) > 0 {
		t.Errorf("a link probe arrives: %v, %v", changes, err)
	}
	now = now.Add(time.Second)
	if changes := append(send(a, c), send(c, a)...); len(changes) > 0 {
		t.Errorf("a link is blocked: %v", changes)
	}
}

// TestLoopsOfThreePorts checks that all but one port of a bridge are blocked, and that another one
// takes over when that goes down.
func TestLoopsOfThreePorts(t *testing.T) {
	ports := []topology.PortRef{ref(1, 1), ref(2, 1), ref(3, 1)}
	b := newBridge(t, Options{}, ports...)
	b.run(time.Minute)
	b.ports = ports
	b.run(time.Minute)
	edges := func() (n int) {
		for _, at := range ports {
			if b.d.IsEdge(at) {
				n++
			}
		}
		return n
	}
	if edges() != 1 || !b.d.IsEdge(ports[0]) {
		t.Errorf("%d edge ports, loops %v", edges(), b.d.Loops())
	}
	b.d.PortDown(ports[0])
	b.ports = ports[1:]
	b.run(time.Minute)
	if edges() != 1 {
		t.Errorf("after the port went down %d edge ports, loops %v", edges(), b.d.Loops())
	}
}

// TestLoopBehindOnePort checks that a port is blocked behind which a network brings frames back.
func TestLoopBehindOnePort(t *testing.T) {
	at := ref(1, 1)
	b := newBridge(t, Options{}, at)
	b.run(time.Minute)
	b.ports = []topology.PortRef{at}
	b.run(5 * time.Minute)
	if b.d.IsEdge(at) || b.count(LoopFound, at) != 1 || !slices.Equal(b.d.Loops(), []Loop{{at, at}}) {
		t.Errorf("edge %v, found %d times, loops %v", b.d.IsEdge(at), b.count(LoopFound, at), b.d.Loops())
	}
}

// TestKeptPortsAreNotBlocked checks that a port to keep stays open, although it is newer.
func TestKeptPortsAreNotBlocked(t *testing.T) {
	uplink := ref(2, 1)
	b := newBridge(t, Options{Keep: func(at topology.PortRef) bool { return at == uplink }}, ref(1, 1), uplink)
	b.run(time.Minute)
	b.ports = []topology.PortRef{ref(1, 1), uplink}
	b.run(time.Minute)
	if !b.d.IsEdge(uplink) || b.d.IsEdge(ref(1, 1)) {
		t.Errorf("loops %v", b.d.Loops())
	}
}

// TestHostsCannotBlockPorts checks that no frame blocks a port except a fresh probe at the port where
// it arrives: forged, altered, repeated and old ones, and probes of links, do not.
func TestHostsCannotBlockPorts(t *testing.T) {
	b := newBridge(t, Options{}, ref(1, 1), ref(2, 1))
	b.run(time.Minute)
	from, here := ref(1, 1), ref(2, 1)
	frame := b.d.LoopProbe(nil, from, b.now)
	refused := func(what string, payload []byte, want error) {
		t.Helper()
		changes, err := b.d.ReceiveLoop(payload, here, b.now)
		if len(changes) > 0 || !errors.Is(err, want) {
			t.Errorf("%s: %v, %v; want %v", what, changes, err, want)
		}
	}
	for i := range frame[loopHeader:] {
		altered := slices.Clone(frame[loopHeader:])
		altered[i] ^= 1
		if changes, err := b.d.ReceiveLoop(altered, here, b.now); len(changes) > 0 || err == nil {
			t.Errorf("byte %d altered: %v, %v", i, changes, err)
		}
		if changes, err := b.d.ReceiveLoop(frame[loopHeader:][:i], here, b.now); len(changes) > 0 || err == nil {
			t.Errorf("%d bytes: %v, %v", i, changes, err)
		}
	}
	refused("a probe of links", b.d.Probe(nil, from, b.now)[loopHeader:], ErrForeign)
	other := New(Options{}, t0)
	other.PortUp(from, openflow.MAC{2}, t0)
	refused("another controller's", other.LoopProbe(nil, from, b.now)[loopHeader:], ErrForeign)
	late := b.d.LoopProbe(nil, from, b.now.Add(-DefaultMaxAge-time.Millisecond))
	refused("an old one", late[loopHeader:], nil)
	if n := len(b.d.Loops()); n > 0 {
		t.Errorf("%d loops", n)
	}
	b.receive(frame, here)
	if n := len(b.d.Loops()); n != 1 {
		t.Fatalf("%d loops after a fresh probe", n)
	}
	for b.now.Before(t0.Add(time.Hour)) {
		b.run(time.Second)
		refused("repeated", frame[loopHeader:], nil)
	}
	if n := len(b.d.Loops()); n > 0 {
		t.Errorf("repeated probes keep %d loops", n)
	}
}

// TestHostsThatMoveAreNoLoop checks that a move only has its ports probed, and not without end.
func TestHostsThatMoveAreNoLoop(t *testing.T) {
	at := ref(1, 1)
	b := newBridge(t, Options{}, at)
	b.run(time.Minute)
	probes := 0
	for range 1000 {
		b.d.ProbeSoon(at, b.now)
		probes += len(b.d.Tick(b.now).LoopProbe)
		b.now = b.now.Add(10 * time.Millisecond)
	}
	if probes < 2 || probes > 20 {
		t.Errorf("%d probes in 10 s", probes)
	}
	if !b.d.IsEdge(at) {
		t.Error("the port is no edge port")
	}
}
