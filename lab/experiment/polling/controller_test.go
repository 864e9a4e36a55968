package polling

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	leftMAC, rightMAC = openflow.MAC{2, 0, 0, 0, 0, 1}, openflow.MAC{2, 0, 0, 0, 0, 2}
	leftIP, rightIP   = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
)

// segment returns a segment of the connection from left to right.
func segment(t *testing.T, syn bool, size int) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: leftIP.AsSlice(), DstIP: rightIP.AsSlice()}
	tcp := &layers.TCP{SrcPort: 1000, DstPort: 80, SYN: syn, ACK: !syn}
	buf := gopacket.NewSerializeBuffer()
	err := tcp.SetNetworkLayerForChecksum(ip)
	if err == nil {
		err = gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: leftMAC[:], DstMAC: rightMAC[:], EthernetType: layers.EthernetTypeIPv4}, ip, tcp, gopacket.Payload(make([]byte, size)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// leads counts a switch's rules for the connection.
func leads(s *fake.Switch) (n int) {
	of := openflow.MustMatch(openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoTCP), openflow.TCPSrc(1000))
	for _, e := range s.Table().Entries() {
		if of.Covers(e.Match) {
			n++
		}
	}
	return n
}

// TestLargeConnection checks that a connection reaches the controller once and gets a rule where it
// enters, and that it gets a path once it has carried much between two readings.
func TestLargeConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	capacities := map[network.PortRef]uint64{}
	for sw := range openflow.DatapathID(2) {
		for port := range uint32(3) {
			capacities[network.PortRef{Switch: 1 + sw, Port: 1 + port}] = 1_000_000
		}
	}
	c, err := New(Options{Listeners: []net.Listener{listener}, Capacities: capacities, Interval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var left, right *fake.Switch
	joined := func(to **fake.Switch) func(uint32, []byte) { // ports 2 and 3 of both switches are joined
		return func(port uint32, frame []byte) {
			if port > 1 {
				_, _ = (*to).Receive(port, frame) // a switch that is not connected yet loses the frame
			}
		}
	}
	left, right = fake.NewSwitch(fake.Options{DPID: 1, Ports: 3, OnOutput: joined(&right)}), fake.NewSwitch(fake.Options{DPID: 2, Ports: 3, OnOutput: joined(&left)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for _, s := range []*fake.Switch{left, right} {
		running.Go(func() { _ = s.Dial(ctx, listener.Addr()) }) // it ends with the controller
	}
	receive := func(s *fake.Switch, frame []byte) {
		if _, err := s.Receive(1, frame); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all links", func() bool { return len(c.Network().Topology().Links) == 4 })
	eventually(t, "rules for both hosts", func() bool {
		receive(left, packet.AppendARPRequest(nil, leftMAC, leftIP, rightIP, 0))
		receive(right, packet.AppendARPRequest(nil, rightMAC, rightIP, leftIP, 0))
		return c.Network().HostStats().Destinations == 2
	})
	if err := c.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	_, before := c.Messages()
	receive(left, segment(t, true, 0))
	eventually(t, "a rule where it enters", func() bool { return leads(left) == 1 })
	if n := leads(right); n != 0 {
		t.Errorf("%d rules elsewhere", n)
	}
	eventually(t, "rules along a path", func() bool {
		receive(left, segment(t, false, 1400))
		return leads(right) == 1
	})
	if _, after := c.Messages(); after.Of(openflow.TypePacketIn) == before.Of(openflow.TypePacketIn) || after.Of(openflow.TypeMultipartReply) == before.Of(openflow.TypeMultipartReply) {
		t.Errorf("messages before and after: %v, %v", before, after)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}
