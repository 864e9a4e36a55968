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
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// dial opens a connection that sends nothing by itself.
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
	_ = conn.SetReadDeadline(time.Now().Add(networktest.Timeout))
	if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: the connection was not closed", what)
	}
}

// header returns a message header with any length.
func header(kind openflow.MsgType, length uint16, rest ...byte) []byte {
	b := []byte{openflow.Version, byte(kind), 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(b[2:], length)
	return append(b, rest...)
}

func TestMalformedHandshakesEndOnlyTheirConnection(t *testing.T) {
	t.Parallel()
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{RequestTimeout: 500 * time.Millisecond}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	check := networktest.Healthy(t, n, o)
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

// TestMalformedMessagesHarmNoOtherSwitch checks that malformed messages of a switch that is up
// affect only its own session.
func TestMalformedMessagesHarmNoOtherSwitch(t *testing.T) {
	t.Parallel()
	var o *network.Owner
	n, _ := networktest.Start(t, network.Config{}, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	check := networktest.Healthy(t, n, o)
	packetIn, _ := (&openflow.PacketIn{BufferID: openflow.NoBuffer, InPort: 1, Data: networktest.Frame(1, 2)}).AppendTo(nil, 0)
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
			stop := networktest.Connect(t, n, s, 0xbad)
			if _, err := s.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			if c.survives {
				networktest.Apply(t, o, "bad", networktest.Program(networktest.TCPTo(0xbad, 80, 1)), network.ApplyOptions{}) // in order: it has been read
			} else {
				networktest.Down(t, n, 0xbad)
			}
			check()
			stop()
			networktest.Down(t, n, 0xbad)
		})
	}
}

// TestSwitchThatDoesNotReadIsCutOff checks that the session of a switch that does not read is
// ended, and that nobody waits for it.
func TestSwitchThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	var o *network.Owner
	config := network.Config{EchoInterval: 100 * time.Millisecond, EchoTimeout: 5 * time.Second, PacketOutBytes: 64 << 10}
	n, _ := networktest.Start(t, config, func(n *network.Network) { o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	check := networktest.Healthy(t, n, o)
	stuck := make(chan struct{})
	s := fake.NewSwitch(fake.Options{DPID: 0xdead, Ports: 2, Refuse: func(m openflow.Message) *openflow.Error {
		if m.MsgType() == openflow.TypePacketOut {
			<-stuck
		}
		return nil
	}})
	networktest.Connect(t, n, s, 0xdead)
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
	n, _ := networktest.Start(t, network.Config{})
	first := fake.NewSwitch(fake.Options{DPID: 5, Ports: 2})
	networktest.Connect(t, n, first, 5)
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

// TestDeadConnectionIsReplaced checks that a switch whose old connection is dead but not closed
// can connect again at once.
func TestDeadConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	n, _ := networktest.Start(t, network.Config{})
	hang, release := make(chan struct{}), make(chan struct{})
	dead := fake.NewSwitch(fake.Options{DPID: 5, Ports: 2, Refuse: func(m openflow.Message) *openflow.Error {
		if e, ok := m.(*openflow.EchoRequest); ok && len(e.Data) > 0 { // the question whether it is alive
			close(hang)
			<-release
		}
		return nil
	}})
	networktest.Connect(t, n, dead, 5)
	before, _ := n.Switch(5)
	defer close(release)
	networktest.Background(t, func(ctx context.Context) error {
		return fake.NewSwitch(fake.Options{DPID: 5, Ports: 2}).Dial(ctx, n.Addr()[0])
	})
	<-hang
	networktest.Eventually(t, "the new session", func() bool {
		now, ok := n.Switch(5)
		return ok && now != before
	})
}
