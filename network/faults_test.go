package network_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/lab/loadgen"
	"github.com/sluice-net/sluice/openflow"
)

// dial opens a connection that speaks no OpenFlow by itself.
func dial(t *testing.T, n *network.Network) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ended waits until the controller has closed the connection.
func ended(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: the connection was not closed", what)
	}
}

// header is the header of a message with a length of its own choice.
func header(kind openflow.MsgType, length uint16, rest ...byte) []byte {
	b := []byte{openflow.Version, byte(kind), 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(b[2:], length)
	return append(b, rest...)
}

// healthy is a switch whose session must survive what others do: the test fails
// if it is ever down or a change on it is not confirmed.
func healthy(t *testing.T, n *network.Network, o *network.Owner) (check func()) {
	t.Helper()
	s := fake.NewSwitch(fake.Options{DPID: 0xaa, Ports: 2})
	connect(t, n, s, 0xaa)
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchDown && e.Switch == 0xaa && t.Context().Err() == nil {
			t.Error("the healthy switch's session ended")
		}
	})
	out := uint32(0)
	return func() {
		t.Helper()
		out++
		apply(t, o, "healthy", program(tcpTo(0xaa, 80, out)), network.ApplyOptions{})
		wantRules(t, s, map[uint16]uint32{80: out})
	}
}

func TestMalformedGreetingsEndOnlyTheirConnection(t *testing.T) {
	t.Parallel()
	var o *network.Owner
	n, _ := start(t, network.Config{RequestTimeout: 500 * time.Millisecond}, func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) })
	check := healthy(t, n, o)
	hello, _ := openflow.NewHello().AppendTo(nil, 1)
	for name, text := range map[string][]byte{
		"silence":                          nil,
		"HTTP":                             []byte("GET / HTTP/1.1\r\nHost: controller\r\n\r\n"),
		"zeros":                            make([]byte, 100),
		"hello with a zero-length element": header(openflow.TypeHello, 16, 0, 1, 0, 0, 0, 0, 0, 0),
		"hello shorter than a header":      header(openflow.TypeHello, 4),
		"hello of OpenFlow 1.0":            {1, 0, 0, 8, 0, 0, 0, 1},
		"hello, then a length of zero":     append(hello, header(openflow.TypeEchoRequest, 0)...),
		"hello, then half a message":       append(hello, header(openflow.TypeFeaturesReply, 32, 1, 2, 3)...),
		"hello, then short features":       append(hello, header(openflow.TypeFeaturesReply, 16, 0, 0, 0, 0, 0, 0, 0, 1)...),
		"hello, then an error":             append(hello, header(openflow.TypeError, 12, 0, 1, 0, 6)...),
	} {
		conn := dial(t, n)
		if _, err := conn.Write(text); err != nil {
			t.Fatal(err)
		}
		ended(t, name, conn)
		check()
	}
}

// After the session is up, what a switch sends may still be anything.
func TestMalformedMessagesHarmNoOtherSwitch(t *testing.T) {
	t.Parallel()
	var o *network.Owner
	n, _ := start(t, network.Config{}, func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) })
	check := healthy(t, n, o)
	packetIn, _ := (&openflow.PacketIn{BufferID: openflow.NoBuffer, InPort: 1, Data: frame(1, 2)}).AppendTo(nil, 0)
	zeroTLV := append([]byte(nil), packetIn...)
	zeroTLV[27], zeroTLV[31] = 12, 0 // an in_port of no bytes
	for name, c := range map[string]struct {
		bytes    []byte
		survives bool
	}{
		"unknown type":                   {header(77, 8), true},
		"a message for switches":         {header(openflow.TypeFlowMod, 8), true},
		"packet-in too short":            {header(openflow.TypePacketIn, 12, 1, 2, 3, 4), true},
		"packet-in with a wrong match":   {zeroTLV, true},
		"flow-removed too short":         {header(openflow.TypeFlowRemoved, 16, 0, 0, 0, 0, 0, 0, 0, 0), true},
		"port-status too short":          {header(openflow.TypePortStatus, 8), true},
		"a reply nobody asked for":       {header(openflow.TypeMultipartReply, 16, 0, 13, 0, 0, 0, 0, 0, 0), true},
		"a barrier reply out of nowhere": {header(openflow.TypeBarrierReply, 8), true},
		"an empty frame": {func() []byte {
			b, _ := (&openflow.PacketIn{BufferID: openflow.NoBuffer, InPort: 1}).AppendTo(nil, 0)
			return b
		}(), true},
		"a length of zero": {header(openflow.TypeEchoRequest, 0), false},
		"another version":  {[]byte{1, 2, 0, 8, 0, 0, 0, 0}, false},
		"text":             {bytes.Repeat([]byte("the quick brown fox "), 2000), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := fake.NewSwitch(fake.Options{DPID: 0xbad, Ports: 2})
			stop := connect(t, n, s, 0xbad)
			if _, err := s.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			if c.survives {
				apply(t, o, "bad", program(tcpTo(0xbad, 80, 1)), network.ApplyOptions{}) // in order: it has been read
			} else {
				down(t, n, 0xbad)
			}
			check()
			stop()
			down(t, n, 0xbad)
		})
	}
}

// A switch that floods packet-ins must not hold back another's session.
func TestFloodOfPacketInsHarmsNoOtherSwitch(t *testing.T) {
	var o *network.Owner
	n, _ := start(t, network.Config{}, func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) })
	check := healthy(t, n, o)
	flood := background(t, func(ctx context.Context) error {
		_, err := loadgen.Run(ctx, loadgen.Options{
			Address: n.Addr()[0].String(), Switches: 2, Window: 20000, Warmup: time.Millisecond, Duration: patience,
			Settle: 300 * time.Millisecond, FirstDPID: 0x100,
		})
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	up(t, n, 0x100)
	eventually(t, "the flood to flow", func() bool {
		s, ok := n.Switch(0x100)
		return ok && s.Stats().PacketIns > 10000
	})
	for range 20 {
		check()
	}
	flood()
}

// A switch that does not read what it is sent is cut off; nobody waits for it.
func TestSwitchThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	var o *network.Owner
	config := network.Config{EchoInterval: 100 * time.Millisecond, EchoTimeout: 5 * time.Second, PacketOutBytes: 64 << 10}
	n, _ := start(t, config, func(n *network.Network) { o = owner(t, n, "svc", network.OwnerOptions{}) })
	check := healthy(t, n, o)
	stuck := make(chan struct{})
	s := fake.NewSwitch(fake.Options{DPID: 0xdead, Ports: 2, Refuse: func(m openflow.Message) *openflow.Error {
		if m.MsgType() == openflow.TypePacketOut {
			<-stuck
		}
		return nil
	}})
	connect(t, n, s, 0xdead)
	t.Cleanup(func() { close(stuck) })
	sw, _ := n.Switch(0xdead)
	big, drops := make([]byte, 32<<10), 0
	for sw.Connected() {
		if err := sw.PacketOut(1, []openflow.Action{openflow.Output(2)}, big); errors.Is(err, network.ErrBusy) {
			drops++
			check()
		}
	}
	if drops == 0 || sw.Stats().PacketOutsDropped == 0 {
		t.Error("no packet-out was dropped and counted")
	}
}

func TestSecondSwitchWithTheSameDatapathIsRefused(t *testing.T) {
	n, _ := start(t, network.Config{})
	first := fake.NewSwitch(fake.Options{DPID: 5, Ports: 2})
	connect(t, n, first, 5)
	before, _ := n.Switch(5)
	second := fake.NewSwitch(fake.Options{DPID: 5, Ports: 2})
	if err := second.Dial(t.Context(), n.Addr()[0]); err != nil {
		t.Logf("the second switch: %v", err)
	}
	if now, ok := n.Switch(5); !ok || now != before {
		t.Error("the first switch did not keep its session")
	}
	if second.FlowMods() != 0 {
		t.Error("the second switch was sent rules")
	}
}

// A switch whose old connection is dead but not closed gets in at once.
func TestDeadConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	n, _ := start(t, network.Config{})
	hang, release := make(chan struct{}), make(chan struct{})
	dead := fake.NewSwitch(fake.Options{DPID: 5, Ports: 2, Refuse: func(m openflow.Message) *openflow.Error {
		if e, ok := m.(*openflow.EchoRequest); ok && len(e.Data) > 0 { // the question whether it lives
			close(hang)
			<-release
		}
		return nil
	}})
	connect(t, n, dead, 5)
	before, _ := n.Switch(5)
	defer close(release)
	background(t, func(ctx context.Context) error {
		return fake.NewSwitch(fake.Options{DPID: 5, Ports: 2}).Dial(ctx, n.Addr()[0])
	})
	<-hang
	eventually(t, "the new session", func() bool {
		now, ok := n.Switch(5)
		return ok && now != before
	})
}
