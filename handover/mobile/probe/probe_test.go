package probe_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/handover/mobile/fake"
	"github.com/sluice-net/sluice/handover/mobile/probe"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

var (
	gateway = netip.MustParseAddr("10.8.0.1")
	here    = openflow.MAC{2, 0, 0, 0, 0, 1}
	there   = openflow.MAC{2, 0, 0, 0, 0, 0xfe}
)

func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := fake.NewWire(nil)
		wire.Delay = 3 * time.Millisecond
		wire.SetGateway(gateway, there)
		ctx, cancel := context.WithTimeout(t.Context(), 19500*time.Millisecond)
		defer cancel()
		var got []probe.Sample
		time.AfterFunc(4500*time.Millisecond, func() { wire.Cut(true) })
		time.AfterFunc(9500*time.Millisecond, func() { wire.Cut(false) })
		// What is not the gateway's answer to us counts for nothing.
		foreign := packet.AppendARP(nil, packet.Frame{Dst: here, Src: there}, packet.ARPMessage{
			Op: packet.ARPReply, SenderMAC: there, Sender: gateway.Next(), TargetMAC: here, Target: netip.IPv4Unspecified(),
		})
		for range 3 {
			wire.Deliver(foreign)
		}
		c := probe.Config{MAC: here, Gateway: gateway, Interval: time.Second, Window: 10}
		err := probe.Run(ctx, c, wire.Open(), func(s probe.Sample) { got = append(got, s) })
		if !errors.Is(err, context.DeadlineExceeded) || len(got) != 20 {
			t.Fatalf("%d samples, %v", len(got), err)
		}
		for n, want := range map[int]probe.Sample{
			0:  {Loss: 0, Probes: 1, RTT: 6 * time.Millisecond, Gateway: there},
			4:  {Loss: 0, Probes: 5, RTT: 6 * time.Millisecond, Gateway: there},
			9:  {Loss: 0.5, Probes: 10, Gateway: there},
			14: {Loss: 0.5, Probes: 10, RTT: 6 * time.Millisecond, Gateway: there},
			19: {Loss: 0, Probes: 10, RTT: 6 * time.Millisecond, Gateway: there},
		} {
			if got[n] != want {
				t.Errorf("sample %d: %+v, want %+v", n, got[n], want)
			}
		}
		h, err := packet.Parse(wire.Sent()[0])
		if err != nil || h.Src != netip.IPv4Unspecified() || h.Dst != gateway || h.ARPSHA != here || h.EthDst != packet.Broadcast {
			t.Errorf("the probe claims %+v, %v", h, err)
		}
	})
}

// failing is an interface that is down.
type failing struct{ *fake.Socket }

func (failing) Send([]byte) error { return errors.New("network is down") }

func TestInterfaceFails(t *testing.T) {
	err := probe.Run(t.Context(), probe.Config{MAC: here, Gateway: gateway, Interval: time.Second}, failing{}, func(probe.Sample) { t.Error("a sample") })
	if err == nil {
		t.Error("no error")
	}
}

func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 30).Draw(t, "size")
		fates := rapid.SliceOf(rapid.Bool()).Draw(t, "fates")
		w := probe.NewWindow(size)
		for _, lost := range fates {
			w.Add(lost)
		}
		latest := fates[max(0, len(fates)-size):]
		lost := 0
		for _, l := range latest {
			if l {
				lost++
			}
		}
		if w.Len() != len(latest) || len(latest) > 0 && w.Loss() != float64(lost)/float64(len(latest)) {
			t.Fatalf("%d probes, loss %v; want %d of %d", w.Len(), w.Loss(), lost, len(latest))
		}
	})
}
