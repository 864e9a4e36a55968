package stats

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/packet"
)

func headers(from byte) *packet.Headers {
	return &packet.Headers{
		Layers: packet.Ethernet | packet.IPv4 | packet.UDP, Proto: packet.ProtoUDP,
		Src: netip.AddrFrom4([4]byte{10, 0, 0, from}), Dst: netip.AddrFrom4([4]byte{10, 0, 1, 1}), SrcPort: 1000, DstPort: 2000,
	}
}

func everybody(Conversation) bool { return true }

// TestTalkers samples two flows of known rates, and checks that the estimates are within their
// reported error.
func TestTalkers(t *testing.T) {
	const every = 64
	random := rand.New(rand.NewPCG(3, 4))
	talkers := NewTalkers()
	rates := map[byte]int{1: 1500, 2: 4000} // packets per second, of 500 bytes
	now := t0
	for ms := range 30_000 {
		now = t0.Add(time.Duration(ms) * time.Millisecond)
		for from, rate := range rates {
			for range rate / 500 {
				if random.IntN(2*every) == 0 { // half of the packets of a flow of twice as many
					talkers.Take(a, headers(from), 500, every, now)
				}
			}
		}
	}
	top := talkers.Top(10, now, everybody)
	if len(top) != 2 {
		t.Fatalf("%+v", top)
	}
	for i, from := range []byte{2, 1} {
		// rate/500 packets in each millisecond, of which one in 2*every counts for every.
		want := float64(rates[from]/500*1000) / 2
		got := top[i]
		if got.Src != netip.AddrPortFrom(headers(from).Src, 1000) || got.At != a || got.Proto != packet.ProtoUDP {
			t.Errorf("place %d: %+v", i, got)
		}
		if math.Abs(got.Packets/want-1) > 1.5*got.Error || got.Error > 0.35 || got.Bits != 8*500*got.Packets {
			t.Errorf("%.0f packets/s within %.0f %%, want %.0f", got.Packets, 100*got.Error, want)
		}
	}
	if top := talkers.Top(1, now, everybody); len(top) != 1 {
		t.Errorf("%d, asked for one", len(top))
	}
	if top := talkers.Top(10, now, func(c Conversation) bool { return c.At == b }); len(top) != 0 {
		t.Errorf("nobody talks at %v: %+v", b, top)
	}
	if top := talkers.Top(10, now.Add(talkerWindow), everybody); len(top) != 2 {
		t.Errorf("after a window: %+v", top)
	}
	if top := talkers.Top(10, now.Add(time.Minute), everybody); len(top) != 0 {
		t.Errorf("after a minute of silence: %+v", top)
	}
}

func TestTalkersAreBounded(t *testing.T) {
	talkers := NewTalkers()
	for i := range 3 * maxTalkers {
		h := headers(1)
		h.SrcPort, h.DstPort = uint16(i), uint16(i>>16)
		talkers.Take(a, h, 100, 1, t0)
	}
	if n := len(talkers.Top(math.MaxInt, t0.Add(talkerWindow), everybody)); n != maxTalkers {
		t.Errorf("%d conversations", n)
	}
	arp := &packet.Headers{Layers: packet.Ethernet | packet.ARP}
	talkers.Take(a, arp, 60, 1, t0.Add(talkerWindow))
	if len(talkers.current) != 0 {
		t.Error("ARP is a conversation")
	}
}
