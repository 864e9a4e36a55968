package network_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// TestEarlyEchoIsAnsweredUnderItsNumber checks that an echo request before the features is
// answered with its own transaction identifier.
func TestEarlyEchoIsAnsweredUnderItsNumber(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{})
	conn := dial(t, n)
	hello, _ := openflow.NewHello().AppendTo(nil, 1)
	both, _ := (&openflow.EchoRequest{Data: []byte("early")}).AppendTo(hello, 77)
	if _, err := conn.Write(both); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(networktest.Timeout))
	for r := openflow.NewReader(conn); ; {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if openflow.MsgType(m[1]) != openflow.TypeEchoReply {
			continue
		}
		if xid := openflow.XID(m); xid != 77 {
			t.Errorf("the reply has number %d, want 77", xid)
		}
		return
	}
}

// TestSwitchThatWasSlowOnceStays checks that a switch which did not read for a moment is not
// disconnected later, long after it has caught up.
func TestSwitchThatWasSlowOnceStays(t *testing.T) {
	t.Parallel()
	const echoes = 8 // more than there are in the time of EchoTimeout
	config := network.Config{EchoInterval: time.Second, EchoTimeout: 5 * time.Second, PacketOutBytes: 16 << 20}
	n, _ := networktest.Start(t, config)
	slow, asleep := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := fake.NewSwitch(fake.Options{DPID: 7, Ports: 2, Refuse: func(m openflow.Message) *openflow.Error {
		if p, ok := m.(*openflow.PacketOut); ok && len(p.Data) > 1000 {
			once.Do(func() {
				close(asleep)
				<-slow
			})
		}
		return nil
	}})
	networktest.Connect(t, n, s, 7)
	wake := sync.OnceFunc(func() { close(slow) })
	t.Cleanup(wake)
	sw, _ := n.Switch(7)
	big := make([]byte, 32<<10)
	send := func() {
		if err := sw.PacketOut(1, []openflow.Action{openflow.Output(2)}, big); err != nil {
			t.Fatal(err)
		}
	}
	send()
	<-asleep
	for range 400 { // more than the sockets hold
		send()
	}
	wake()
	networktest.Eventually(t, "the switch to catch up", func() bool { return s.Count(openflow.TypePacketOut) >= 401 })
	before := s.Count(openflow.TypeEchoRequest)
	networktest.Eventually(t, "more echoes", func() bool { return !sw.Connected() || s.Count(openflow.TypeEchoRequest) >= before+echoes })
	if !sw.Connected() {
		t.Fatal("the session was cut off after the switch had caught up")
	}
}

// repeater is a switch's connection that sends every barrier reply again before its next message.
type repeater struct {
	net.Conn
	mu   sync.Mutex
	seen []byte
}

func (r *repeater) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.Conn.Write(append(slices.Clone(r.seen), b...)); err != nil {
		return 0, err
	}
	for m := b; len(m) >= 8; m = m[int(m[2])<<8|int(m[3]):] {
		if openflow.MsgType(m[1]) == openflow.TypeBarrierReply {
			r.seen = append(r.seen, m[:8]...)
		}
	}
	return len(b), nil
}

// TestBarrierRepliesThatComeTwice checks that a switch which answers a barrier more than once does
// no harm.
func TestBarrierRepliesThatComeTwice(t *testing.T) {
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	s := fake.NewSwitch(fake.Options{DPID: 9, Ports: 2})
	conn := dial(t, n)
	networktest.Background(t, func(ctx context.Context) error { return s.Run(ctx, &repeater{Conn: conn}) })
	networktest.Up(t, n, 9)
	for i := range uint32(20) {
		networktest.Apply(t, o, "k", networktest.Program(networktest.TCPTo(9, 80, i+1)), network.ApplyOptions{Atomic: true})
	}
	networktest.WantRules(t, s, map[uint16]uint32{80: 20})
}

// TestEventsOfShortSessionsComeInOrder checks that the last event of a switch is the true one,
// even if its session ends while the switch is being announced.
func TestEventsOfShortSessionsComeInOrder(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 3, Ports: 2})
	var mu sync.Mutex
	var seen []network.EventKind
	gone := make(chan struct{})
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) {
		n.Subscribe(func(e network.Event) {
			mu.Lock()
			seen = append(seen, e.Kind)
			mu.Unlock()
			switch e.Kind {
			case network.SwitchUp:
				s.Close()
				select { // the reader may notice first
				case <-gone:
				case <-time.After(200 * time.Millisecond):
				}
			case network.SwitchDown:
				close(gone)
			}
		})
	})
	networktest.Background(t, func(ctx context.Context) error { return s.Dial(ctx, n.Addr()[0]) })
	select {
	case <-gone:
	case <-time.After(networktest.Timeout):
		t.Fatal("no event says that the switch is down")
	}
	port := network.PortRef{Switch: 3, Port: 1}
	pause.For(500*time.Millisecond, "ports settle within 50 ms")
	if n.IsEdge(port) {
		t.Error("a port of a switch that is down has become an edge port")
	}
	mu.Lock()
	defer mu.Unlock()
	if last := seen[len(seen)-1]; last != network.SwitchDown {
		t.Errorf("events were %v, want the switch's end last", seen)
	}
}

// TestPortThatDiesDuringTheAnnouncementIsDown checks that a port which goes down while its switch
// is being announced is reported as down.
func TestPortThatDiesDuringTheAnnouncementIsDown(t *testing.T) {
	s := fake.NewSwitch(fake.Options{DPID: 3, Ports: 2})
	told := make(chan struct{})
	tell := sync.OnceFunc(func() { close(told) })
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) {
		n.Subscribe(func(e network.Event) {
			switch {
			case e.Kind == network.PortUp && e.Port.Port == 1:
				_ = s.SetPort(2, false)
				select {
				case <-told:
				case <-time.After(networktest.Timeout):
				}
			case e.Kind == network.PortDown && e.Port.Port == 2:
				tell()
			}
		})
	})
	networktest.Connect(t, n, s, 3)
	networktest.Eventually(t, "port 1 to settle", func() bool { return n.IsEdge(network.PortRef{Switch: 3, Port: 1}) })
	pause.For(300*time.Millisecond, "port 2 would settle within 50 ms")
	if n.IsEdge(network.PortRef{Switch: 3, Port: 2}) {
		t.Fatal("port 2 has become an edge port though it is down")
	}
}

// TestEventsOfTwoSessionsComeInOrder checks that the end of a session is announced before the
// beginning of the switch's next one.
func TestEventsOfTwoSessionsComeInOrder(t *testing.T) {
	var mu sync.Mutex
	var seen []network.EventKind
	again := make(chan struct{})
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) {
		n.Subscribe(func(e network.Event) {
			if e.Kind == network.HostRemoved || e.Kind == network.LinkDown && e.Link.From.Switch == 3 {
				select { // as a busy machine may do
				case <-again:
				case <-time.After(300 * time.Millisecond):
				}
			}
			if e.Switch != 3 || e.Kind != network.SwitchUp && e.Kind != network.SwitchDown {
				return
			}
			mu.Lock()
			seen = append(seen, e.Kind)
			if len(seen) == 2 {
				close(again)
			}
			mu.Unlock()
		})
	})
	s, other := cabled(t, fake.Options{DPID: 3, Ports: 2}, fake.Options{DPID: 4, Ports: 2})
	networktest.Connect(t, n, other, 4)
	cut := networktest.Connect(t, n, s, 3)
	networktest.Eventually(t, "the link", func() bool { return len(n.Topology().Links) == 2 })
	cut()
	networktest.Background(t, func(ctx context.Context) error { return s.Dial(ctx, n.Addr()[0]) })
	networktest.Eventually(t, "three events", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == 3
	})
	mu.Lock()
	defer mu.Unlock()
	if want := []network.EventKind{network.SwitchUp, network.SwitchDown, network.SwitchUp}; !slices.Equal(seen, want) {
		t.Errorf("events were %v, want %v", seen, want)
	}
}

// cabled returns two switches whose ports 1 are connected.
func cabled(t *testing.T, a, b fake.Options) (*fake.Switch, *fake.Switch) {
	t.Helper()
	type delivery struct {
		to    *fake.Switch
		frame []byte
	}
	cable := make(chan delivery, 1000)
	var one, two *fake.Switch
	output := func(to **fake.Switch) func(uint32, []byte) {
		return func(port uint32, frame []byte) {
			if port != 1 {
				return
			}
			select {
			case cable <- delivery{*to, slices.Clone(frame)}:
			default: // a full cable loses frames
			}
		}
	}
	a.OnOutput, b.OnOutput = output(&two), output(&one)
	one, two = fake.NewSwitch(a), fake.NewSwitch(b)
	networktest.Background(t, func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case d := <-cable:
				_, _ = d.to.Receive(1, d.frame) // fails while that switch is not connected
			}
		}
	})
	return one, two
}
