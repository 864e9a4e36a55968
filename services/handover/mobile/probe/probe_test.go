package probe_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
	"github.com/sluice-net/sluice/services/handover/mobile/fake"
	"github.com/sluice-net/sluice/services/handover/mobile/probe"
)

var (
	gateway = netip.MustParseAddr("10.8.0.1")
	device  = netip.MustParseAddr("10.8.0.10")
	here    = openflow.MAC{2, 0, 0, 0, 0, 1}
	there   = openflow.MAC{2, 0, 0, 0, 0, 0xfe}
)

// rig is a prober on a wire with a latency of 3 ms, in a bubble of synctest.
type rig struct {
	*probe.Prober
	wire *fake.Wire

	mu      sync.Mutex
	samples []probe.Sample
	traffic datapath.Traffic
	heard   time.Time
}

// newRig starts a prober that ends with ctx.
func newRig(t *testing.T, ctx context.Context) *rig {
	r := &rig{wire: fake.NewWire(nil), Prober: probe.New(probe.Config{MAC: here, Gateway: gateway, Interval: 800 * time.Millisecond, Window: 20})}
	r.wire.Delay = 3 * time.Millisecond
	r.wire.SetGateway(gateway, there)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		err := r.Run(ctx, r.wire.Open(), func(s probe.Sample) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.samples = append(r.samples, s)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	}()
	return r
}

// used sets the interface in use.
func (r *rig) used() *rig {
	r.SetUse(probe.Use{From: device, Traffic: func() (datapath.Traffic, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		now := r.traffic
		now.Quiet = time.Since(r.heard)
		return now, nil
	}})
	return r
}

// pass lets time pass; in each millisecond the given frames are sent and heard.
func (r *rig) pass(d time.Duration, sent, heard uint64) *rig {
	for range d / time.Millisecond {
		r.mu.Lock()
		r.traffic.Sent += sent
		r.traffic.Heard += heard
		if heard > 0 {
			r.heard = time.Now()
		}
		r.mu.Unlock()
		pause.For(time.Millisecond, "the pace of the frames")
	}
	synctest.Wait()
	return r
}

func (r *rig) last() probe.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.samples[len(r.samples)-1]
}

// noticed lets time pass without incoming frames, and returns how long it took to declare the path
// dead.
func (r *rig) noticed(t *testing.T, sent uint64) time.Duration {
	t.Helper()
	for took := time.Duration(0); took < 10*time.Second; took += time.Millisecond {
		if r.last().Silent {
			return took
		}
		r.pass(time.Millisecond, sent, 0)
	}
	t.Fatalf("a dead way is not noticed: %+v", r.last())
	return 0
}

func TestDeathIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name        string
		sent, heard uint64 // in each millisecond before; sending continues
		limit       time.Duration
	}{
		{"packets come", 0, 1, 95 * time.Millisecond},
		{"packets go", 1, 0, 60 * time.Millisecond},
		{"packets come and go", 1, 1, 60 * time.Millisecond},
		{"nothing runs", 0, 0, 860 * time.Millisecond},
	} {
		for _, cut := range []func(*fake.Wire){
			func(w *fake.Wire) { w.Cut(true) },
			func(w *fake.Wire) { w.Edge(true) }, // ARP is still answered
			func(w *fake.Wire) { w.Refuse(unix.ENOBUFS) },
		} {
			for offset := range 10 {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, t.Context()).used().pass(2*time.Second+time.Duration(offset)*5*time.Millisecond, c.sent, c.heard)
					if s := r.last(); s.Silent || s.Loss != 0 || s.RTT != 6*time.Millisecond || s.Gateway != there {
						t.Fatalf("%s: before: %+v", c.name, s)
					}
					cut(r.wire)
					if took := r.noticed(t, c.sent); took > c.limit {
						t.Errorf("%s: noticed after %v", c.name, took)
					}
					r.wire.Cut(false)
					r.wire.Edge(false)
					r.wire.Refuse(nil)
					if r.pass(time.Second, 0, 0); r.last().Silent {
						t.Errorf("%s: it came back: %+v", c.name, r.last())
					}
				})
			}
		}
	}
}

// An interface that is not in use is probed by ARP only, without a sender's address.
func TestUnusedInterface(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, t.Context()).pass(10*time.Second, 1, 0)
		if n := len(r.wire.Sent()); n != 3 {
			t.Errorf("%d probes in 10 s", n)
		}
		for _, f := range r.wire.Sent() {
			h, err := packet.Parse(f)
			if err != nil || !h.Has(packet.ARP) || h.Src != netip.IPv4Unspecified() || h.Dst != gateway || h.ARPSHA != here || h.EthDst != packet.Broadcast {
				t.Errorf("the probe claims %+v, %v", h, err)
			}
		}
		// Packets that are not the gateway's answer to us do not count.
		r.wire.Cut(true)
		r.pass(5500*time.Millisecond, 0, 0)
		r.wire.Cut(false)
		r.wire.SetGateway(gateway.Next(), there)
		r.wire.Deliver(packet.AppendARP(nil, packet.Frame{Dst: here, Src: there}, packet.ARPMessage{
			Op: packet.ARPReply, SenderMAC: there, Sender: gateway.Next(), TargetMAC: here, Target: netip.IPv4Unspecified(),
		}))
		if r.pass(10*time.Millisecond, 0, 0); !r.last().Silent {
			t.Errorf("%+v", r.last())
		}
		r.wire.SetGateway(gateway, there)
		if r.Ask(); r.pass(time.Second, 0, 0).last().Silent {
			t.Errorf("%+v", r.last())
		}
	})
}

// TestProbesOnDemand counts probes. While traffic runs there is a probe each 60 ms, since incoming
// packets prove one direction only.
func TestProbesOnDemand(t *testing.T) {
	for _, c := range []struct {
		name        string
		every       time.Duration
		sent, heard uint64
		most        int // probes in 10 s, of which 13 are those of each interval
	}{
		{"nothing runs", time.Hour, 0, 0, 13},
		{"a packet a millisecond comes", time.Millisecond, 0, 1, 168},
		{"a packet each 10 ms comes", 10 * time.Millisecond, 0, 1, 168},
		{"a packet a second goes and comes", time.Second, 1, 1, 80},
		{"a packet a millisecond goes", time.Millisecond, 1, 0, 500},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, t.Context()).used().pass(2*time.Second, 0, 0)
			before := len(r.wire.Sent())
			for took := time.Duration(0); took < 10*time.Second; took += time.Millisecond {
				if took%c.every == 0 {
					r.pass(time.Millisecond, c.sent, c.heard)
				} else {
					r.pass(time.Millisecond, 0, 0)
				}
			}
			echoes := 0
			for _, f := range r.wire.Sent()[before:] {
				if h, err := packet.Parse(f); err == nil && h.Has(packet.ICMPv4) {
					echoes++
				}
			}
			if echoes > c.most {
				t.Errorf("%s: %d probes in 10 s", c.name, echoes)
			}
		})
	}
}

// A gateway that answers no echo requests is probed by ARP.
func TestGatewayWithoutPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, t.Context())
		r.wire.Edge(true)
		if r.used().pass(5*time.Second, 1, 0); r.last().Silent || r.last().Loss != 0 {
			t.Errorf("%+v", r.last())
		}
		r.wire.Cut(true)
		if took := r.noticed(t, 1); took > 85*time.Millisecond {
			t.Errorf("noticed after %v", took)
		}
	})
}

// An interface that refuses to send is probed further, and the error is reported.
func TestSendErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, t.Context()).used().pass(time.Second, 0, 0)
		r.wire.Refuse(unix.ENOBUFS)
		if s := r.pass(time.Minute, 0, 0).last(); !s.Silent || s.Error != unix.ENOBUFS.Error() {
			t.Errorf("%+v", s)
		}
		r.wire.Refuse(nil)
		if s := r.pass(time.Second, 0, 0).last(); s.Silent || s.Error != "" {
			t.Errorf("%+v", s)
		}
	})
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
