package stats

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
)

// Conversation is traffic from one address and port to another, where it comes into
// a switch.
type Conversation struct {
	At       topology.PortRef
	Src, Dst netip.AddrPort
	Proto    uint8
}

// Talker is a conversation with what samples of packets let expect of it.
type Talker struct {
	Conversation
	Bits, Packets float64 // per second
	// Samples is how many packets were seen, Error by which share the rates may be
	// wrong for that reason, with a probability of 95 %.
	Samples int
	Error   float64
}

// Talkers estimates from samples of packets who uses the network most. Its methods
// may be called concurrently.
type Talkers struct {
	window time.Duration
	mu     sync.Mutex
	began  time.Time // of now
	now    map[Conversation]*share
	before map[Conversation]*share // in the window before; what is told
}

type share struct {
	packets, bytes float64
	samples        int
}

// talkerWindow is over what time samples are counted, and maxTalkers how many
// conversations at most in that time: those that come first, among which are the large
// ones, as they are sampled most often.
const (
	talkerWindow = 5 * time.Second
	maxTalkers   = 8192
)

// NewTalkers makes an empty table.
func NewTalkers() *Talkers {
	return &Talkers{window: talkerWindow, now: map[Conversation]*share{}}
}

// Take counts a packet, of length bytes, that was taken out of rate packets.
func (t *Talkers) Take(at topology.PortRef, h *packet.Headers, length, rate uint32, now time.Time) {
	if !h.IsIP() {
		return
	}
	c := Conversation{At: at, Src: h.Source(), Dst: h.Destination(), Proto: h.Proto}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	s := t.now[c]
	if s == nil {
		if len(t.now) >= maxTalkers {
			return
		}
		s = new(share)
		t.now[c] = s
	}
	s.packets += float64(rate)
	s.bytes += float64(rate) * float64(length)
	s.samples++
}

// turn begins a new window when the present one is over.
func (t *Talkers) turn(now time.Time) {
	switch passed := now.Sub(t.began); {
	case passed < t.window:
		return
	case passed < 2*t.window:
		t.before, t.began = t.now, t.began.Add(t.window)
	default:
		t.before, t.began = nil, now
	}
	t.now = map[Conversation]*share{}
}

// Top are the largest of the last full window that are of interest.
func (t *Talkers) Top(limit int, now time.Time, of func(Conversation) bool) []Talker {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	var out []Talker
	for c, s := range t.before {
		if !of(c) {
			continue
		}
		seconds := t.window.Seconds()
		out = append(out, Talker{
			Conversation: c, Bits: 8 * s.bytes / seconds, Packets: s.packets / seconds, Samples: s.samples,
			Error: 1.96 / math.Sqrt(float64(s.samples)),
		})
	}
	slices.SortFunc(out, func(a, b Talker) int {
		return cmp.Or(cmp.Compare(b.Bits, a.Bits), a.At.Compare(b.At), a.Src.Compare(b.Src), a.Dst.Compare(b.Dst), cmp.Compare(a.Proto, b.Proto))
	})
	return out[:min(limit, len(out))]
}
