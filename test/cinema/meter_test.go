package cinema

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// strangerSSRC is the SSRC of packets that a stranger sends into a channel, and
	// strangerBytes the length of their frames.
	strangerSSRC  = 0x5712a4e6
	strangerBytes = 1000
)

// stranger sends frames of a channel from a host until the test is over.
func stranger(t *testing.T, h *lab.LiveHost, channel uint16, rate float64) (stop func()) {
	t.Helper()
	header := rtp.Header{Version: 2, PayloadType: 96, SSRC: strangerSSRC}
	frame := func(n uint16) []byte {
		header.SequenceNumber = n
		b, err := header.Marshal()
		if err != nil {
			panic(err)
		}
		return packet.AppendUDP(nil, packet.Frame{Src: openflow.MAC(h.MACOf(0)), Dst: openflow.MAC{2, 0, 0xc6, 0x12, 0, 1}}, packet.UDPDatagram{
			Src: netip.AddrPortFrom(h.Addr(), gatewayapi.SourcePort(channel)), Dst: netip.AddrPortFrom(cinema.DefaultMedia, gatewayapi.MediaPort),
			Payload: append(b, make([]byte, strangerBytes-42-len(b))...),
		})
	}
	var socket *packetsocket.Socket
	err := h.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		socket, err = packetsocket.Open(i, packetsocket.Options{SendOnly: true})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	sending.Go(func() {
		defer socket.Close()
		const every = 10 * time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		due, n := 0.0, uint16(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for due += rate / 8 / strangerBytes * every.Seconds(); due >= 1; due-- {
				_ = socket.Send(frame(n)) // a frame that the kernel refuses is not sent
				n++
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); sending.Wait() })
	t.Cleanup(stop)
	return stop
}

// TestMeter checks that a host that sends three times a channel's rate is limited where it
// enters: the meter there drops some of its frames, the rest arrives, and another channel is
// not affected.
func TestMeter(t *testing.T) {
	w := ownEgress(t, "cinema-meter")
	w.lightChannels(2, "in1", "in1")
	gateway := newRawGateway(w, "out1")
	of1, of2 := gateway.join("c1"), gateway.join("c2")
	w.allGot([]*rawViewer{of1, of2}, 100)
	w.whole("a viewer of a producer that keeps to its rate", of1.sum())
	if n := w.metered("s1"); n > 0 {
		t.Errorf("the meters have dropped %d packets of producers that keep to their rate", n)
	}
	stop := stranger(t, w.lab.Host("in1"), 1, 3*lightRate)
	w.must(testbed.Poll(t.Context(), "packets of the stranger, and some that are dropped", func() error {
		if arrived, dropped := of1.strange(), w.metered("s1"); arrived < 50 || dropped < 50 {
			return fmt.Errorf("%d have arrived, %d were dropped", arrived, dropped)
		}
		return nil
	}))
	of2.got(50)
	stop()
	w.whole("a viewer of another channel", of2.sum())
	of1.leave()
	of2.leave()
	w.nothingLeft()
	if meters := w.ofctl("s1", "dump-meters"); strings.Contains(meters, "meter=") {
		t.Errorf("a meter is left: %s", meters)
	}
}

// metered returns how many packets the meters of a switch have dropped.
func (w *world) metered(name string) (sum int) {
	w.t.Helper()
	for _, band := range meterBand.FindAllStringSubmatch(w.ofctl(name, "meter-stats"), -1) {
		n, err := strconv.Atoi(band[1])
		w.must(err)
		sum += n
	}
	return sum
}

// meterBand matches ovs-ofctl's line about a band's packets.
var meterBand = regexp.MustCompile(`(?m)^\s*0: packet_count:(\d+)`)

// strange returns how many packets of a stranger have arrived.
func (v *rawViewer) strange() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	for f, c := range v.flows {
		if f.ssrc == strangerSSRC {
			return c.packets
		}
	}
	return 0
}
