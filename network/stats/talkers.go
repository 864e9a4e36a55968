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

// Conversation is traffic from one address and port to another, where it enters a switch.
type Conversation struct {
	At       topology.PortRef
	Src, Dst netip.AddrPort
	Proto    uint8
}

// Talker is a conversation with its rates, estimated from samples of packets.
type Talker struct {
	Conversation
	Bits, Packets float64 // per second
	// Samples is how many packets were seen. Error is the relative error of the rates that
	// follows from that number, with a probability of 95 %.
	Samples int
	Error   float64
}

// Talkers estimates from samples of packets which conversations use the network most. It is safe
// for concurrent use.
type Talkers struct {
	window       time.Duration
	mu           sync.Mutex
	currentStart time.Time // start of the current window
	current      map[Conversation]*sampleCount
	previous     map[Conversation]*sampleCount // the last full window, from which Top answers
}

type sampleCount struct {
	packets, bytes float64
	samples        int
}

// talkerWindow is the time over which samples are counted. maxTalkers limits the conversations
// in that time to the first ones, which include the large ones, because those are sampled most
// often.
const (
	talkerWindow = 5 * time.Second
	maxTalkers   = 8192
)

// NewTalkers returns an empty table.
func NewTalkers() *Talkers {
	return &Talkers{window: talkerWindow, current: map[Conversation]*sampleCount{}}
}

// Take counts a sampled packet of length bytes, which represents rate packets of the traffic.
func (t *Talkers) Take(at topology.PortRef, h *packet.Headers, length, rate uint32, now time.Time) {
	if !h.IsIP() {
		return
	}
	c := Conversation{At: at, Src: h.Source(), Dst: h.Destination(), Proto: h.Proto}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	s := t.current[c]
	if s == nil {
		if len(t.current) >= maxTalkers {
			return
		}
		s = new(sampleCount)
		t.current[c] = s
	}
	s.packets += float64(rate)
	s.bytes += float64(rate) * float64(length)
	s.samples++
}

// advance begins a new window if the current one is over.
func (t *Talkers) advance(now time.Time) {
	switch passed := now.Sub(t.currentStart); {
	case passed < t.window:
		return
	case passed < 2*t.window:
		t.previous, t.currentStart = t.current, t.currentStart.Add(t.window)
	default:
		t.previous, t.currentStart = nil, now
	}
	t.current = map[Conversation]*sampleCount{}
}

// Top returns the largest conversations of the last full window for which of returns true, at
// most limit of them.
func (t *Talkers) Top(limit int, now time.Time, of func(Conversation) bool) []Talker {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	var out []Talker
	for c, s := range t.previous {
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
