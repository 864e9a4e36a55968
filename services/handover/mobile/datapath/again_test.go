package datapath_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
)

// segment returns a segment from the device to its peer, with a common option.
func segment(src openflow.MAC, port layers.TCPPort, seq, ack uint32, payload string) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: own4.AsSlice(), DstIP: peer4.AsSlice()}
	tcp := &layers.TCP{SrcPort: port, DstPort: 80, Seq: seq, Ack: ack, ACK: true, Window: 500, Options: []layers.TCPOption{
		{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: []byte{0, 0, 0, 1, 0, 0, 0, 2}},
	}}
	_ = tcp.SetNetworkLayerForChecksum(ip)
	return assemble(ether(src, apMAC, layers.EthernetTypeIPv4), ip, tcp, gopacket.Payload(payload))
}

// sendAgain calls SendAgain and checks how many segments were sent.
func (w *within) sendAgain(want int, within time.Duration, gateway openflow.MAC) {
	w.t.Helper()
	err := w.space.do(func() error {
		sent, err := w.inner.SendAgain(within, gateway)
		if sent != want {
			w.t.Errorf("%d segments sent again, want %d", sent, want)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestSendAgain sends segments into one interface and again by the other: only the last ones, and
// only of TCP.
func TestSendAgain(t *testing.T) {
	d := newDevice(t)
	dp := d.opened(t, d.config())
	dp.use(wifi, wifi)
	inside, byWifi, byLTE := d.tap(t, vni), d.world.tap(t, "ap-"+wifi), d.world.tap(t, "ap-"+lte)
	dp.sendAgain(0, time.Minute, openflow.MAC{})
	const port = 1
	seq := uint32(100)
	for _, payload := range []string{"last of all", strings.Repeat("x", 1460-12)} {
		for _, f := range [][]byte{
			segment(vniMAC, port, seq, 7, "first"), segment(vniMAC, port, seq+5, 7, payload),
			segment(vniMAC, port, seq+5, 8, ""), segment(vniMAC, port, seq+5, 9, ""), udp4(vniMAC, apMAC, own4, peer4, 9, 1),
		} {
			inside.send(t, f)
			byWifi.next(t)
		}
		dp.use(lte, lte)
		for _, gateway := range []openflow.MAC{{}, {2, 7, 7, 7, 7, 7}} {
			dp.sendAgain(2, time.Minute, gateway)
			for _, want := range [][]byte{segment(lteMAC, port, seq+5, 7, payload), segment(lteMAC, port, seq+5, 9, "")} {
				if !gateway.IsZero() {
					copy(want, gateway[:])
				}
				if got := byLTE.next(t); !bytes.Equal(got, want) {
					t.Errorf("left as\n%x, want\n%x", got, want)
				}
			}
		}
		dp.use(wifi, wifi)
		seq += 5000
	}
	pause.For(10*time.Millisecond, "what is kept gets old")
	dp.sendAgain(0, 10*time.Millisecond, openflow.MAC{})
}

// TestSendAgainMakesTCPGoOn lets an upload run into a dead interface, under a kernel with a long
// timeout of its own.
func TestSendAgainMakesTCPGoOn(t *testing.T) {
	const timeout, patience = "100s", 40 * time.Second
	a := newAccess(t, true)
	dp := a.opened(t, a.config())
	a.address(t, vni, ownNet, peer4, serverMAC)
	a.run(t, "ip", "route", "change", ownNet.Masked().String(), "dev", vni, "src", own4.String(), "rto_min", timeout)
	dp.use(wifi, wifi)
	var l net.Listener
	a.server.must(t, func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(peer4, 0).String())
		return err
	})
	defer l.Close()
	var near net.Conn
	a.must(t, func() (err error) {
		near, err = net.DialTimeout("tcp", l.Addr().String(), patience)
		return err
	})
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if err := errors.Join(near.SetDeadline(time.Now().Add(patience)), far.SetDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 20_000)
	exchange := func() error {
		_, err := near.Write(b)
		_, readErr := io.ReadFull(far, make([]byte, len(b)))
		return errors.Join(err, readErr)
	}
	if err := exchange(); err != nil {
		t.Fatal(err)
	}
	a.world.run(t, "ip", "link", "set", "ap-"+wifi, "down")
	if _, err := near.Write(b); err != nil {
		t.Fatal(err)
	}
	pause.For(100*time.Millisecond, "TCP's own probe of the tail is lost, too")
	dp.use(lte, lte)
	sent := 0
	err = a.do(func() (err error) {
		sent, err = dp.inner.SendAgain(time.Minute, openflow.MAC{})
		return err
	})
	if err != nil || sent == 0 {
		t.Errorf("%d segments sent again, %v", sent, err)
	}
	if _, err := io.ReadFull(far, make([]byte, len(b))); err != nil {
		t.Errorf("the upload does not go on: %v", err)
	}
}
