package integration

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtp"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/cinema/plugin"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// strangerSSRC is that of packets that somebody sends into a channel, strangerBytes how
	// large their frames are.
	strangerSSRC  = 0x5712a4e6
	strangerBytes = 1000
)

// stranger sends frames from a host as if they were of a channel, until the test is over.
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
			Src: netip.AddrPortFrom(h.Addr(), gatewayapi.SourcePort(channel)), Dst: netip.AddrPortFrom(plugin.DefaultMedia, gatewayapi.MediaPort),
			Payload: append(b, make([]byte, strangerBytes-42-len(b))...),
		})
	}
	var fd int
	err := h.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: i.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	sending.Go(func() {
		defer unix.Close(fd)
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
				_, _ = unix.Write(fd, frame(n)) // what the kernel does not take is not sent
				n++
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); sending.Wait() })
	t.Cleanup(stop)
	return stop
}

// A host that sends three times what its channel may is cut to that where it comes in, so that
// links and other channels do not suffer.
func TestMeter(t *testing.T) {
	w := ownEgress(t, "cinema-meter")
	for n := 1; n <= 2; n++ {
		w.must(w.AddChannel(t.Context(), plugin.ChannelSpec{Name: fmt.Sprintf("c%d", n), Number: n, Source: "test:", BitRate: bitRate, Ingress: "in1"}))
	}
	w.must(w.WaitOnAir(t.Context()))
	gateway := newRawGateway(w, "out1")
	of1, of2 := gateway.join("c1"), gateway.join("c2")
	of1.got(t, 100)
	of2.got(t, 100)
	if s := of1.sum(); s.lost > 0 {
		t.Errorf("a producer that keeps to its rate lost %d of %d packets", s.lost, s.packets)
	}
	stop := stranger(t, w.lab.Host("in1"), 1, 3*bitRate)
	pause.For(3*time.Second, "what may be sent at once has been sent")
	before, began, others := of1.strange(), time.Now(), of2.sum()
	pause.For(5*time.Second, "the rate is measured")
	rate := float64(of1.strange()-before) * strangerBytes * 8 / time.Since(began).Seconds()
	after := of2.sum()
	stop()
	t.Logf("of 3 Mbit/s that were sent into a channel of 1, %.2f arrived; another channel lost %d of %d packets", rate/1e6, after.lost, after.packets-others.packets)
	if rate < bitRate/2 || rate > 1.3*bitRate {
		t.Errorf("%.0f bit/s get through", rate)
	}
	if after.lost > 0 || after.packets-others.packets < 100 {
		t.Errorf("the other channel lost %d of %d packets", after.lost, after.packets-others.packets)
	}
	of1.leave()
	of2.leave()
	w.nothingLeft()
	if meters := w.ofctl("s1", "dump-meters"); strings.Contains(meters, "meter=") {
		t.Errorf("a meter is left: %s", meters)
	}
}

// strange is how many packets of a stranger have come.
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
