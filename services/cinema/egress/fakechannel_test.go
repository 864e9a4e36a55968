package egress

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// fakeChannel is a channel that copies its packets to viewers as switches do.
type fakeChannel struct {
	socket    *net.UDPConn
	from      netip.AddrPort
	protected bool
	nowhere   bool // no ingress gateway has it

	mu     sync.Mutex
	ports  map[uint16]map[string]bool // viewers of each port
	group  *media.Cache
	silent bool // only sound, no key frame
	only   bool // the present group is the last one: no further key frame
	skips  int  // how many times the channel is not copied to a viewer that is granted it
	lose   float64
	lost   int
	bursts int
	rand   *rand.Rand
}

// gop is the number of pictures in a group: 800 ms.
const gop = 20

// worlds counts the addresses that newIngress has returned.
var worlds atomic.Uint32

// newIngress returns a source address for channels. No other test uses it at the same time, in
// this process or in another.
func newIngress() netip.Addr {
	return netip.AddrFrom4([4]byte{127, 77 + byte(worlds.Add(1)%128), byte(os.Getpid() >> 8), byte(os.Getpid())})
}

func newStudio(t testing.TB, ingress netip.Addr, number uint16) *fakeChannel {
	t.Helper()
	at := netip.AddrPortFrom(ingress, gatewayapi.SourcePort(number))
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeChannel{socket: socket, from: at, ports: map[uint16]map[string]bool{}, group: media.NewCache(groupLimits), rand: rand.New(rand.NewPCG(1, uint64(number)))}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); s.film(stop, number) }()
	t.Cleanup(func() { close(stop); <-done; socket.Close() })
	return s
}

// film sends a picture each 40 ms, each in two packets or more, and sound each 20 ms.
func (s *fakeChannel) film(stop chan struct{}, number uint16) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	video, audio := number*5000, number*777
	for n := uint32(int(number) * 7); ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		audio++
		s.send(rtpPacket(media.AudioType, true, audio, n*960, uint32(number)*2, 0xfc, byte(number)))
		if n%2 != 0 {
			continue
		}
		parts := [][]byte{{0x41, 0x80, byte(number)}, bytes.Repeat([]byte{0x41}, 900)}
		if n/2%gop == 0 && !s.lastGroup() {
			parts = [][]byte{{0x67, 0x42, byte(number)}, {0x68, 0xce, byte(number)}, bytes.Repeat([]byte{0x65}, 1100)}
		}
		for i, p := range parts {
			video++
			s.send(rtpPacket(media.VideoType, i == len(parts)-1, video, n*1800, uint32(number)*2+1, p...))
		}
	}
}

func rtpPacket(kind uint8, marker bool, sequence uint16, stamp, ssrc uint32, payload ...byte) []byte {
	b := []byte{0x80, kind, byte(sequence >> 8), byte(sequence)}
	if marker {
		b[1] |= 0x80
	}
	for _, x := range []uint32{stamp, ssrc} {
		b = append(b, byte(x>>24), byte(x>>16), byte(x>>8), byte(x))
	}
	return append(b, payload...)
}

func (s *fakeChannel) send(raw []byte) {
	p, err := media.Parse(raw)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent && p.Video() {
		return
	}
	s.group.Add(p, raw, time.Now())
	for port := range s.ports {
		s.to(port, raw)
	}
}

// to sends a datagram, or loses it. s.mu is held.
func (s *fakeChannel) to(port uint16, raw []byte) {
	if s.rand.Float64() < s.lose {
		s.lost++
		return
	}
	_, _ = s.socket.WriteToUDPAddrPort(raw, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
}

// lastGroup reports whether the channel has no further key frame.
func (s *fakeChannel) lastGroup() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.only
}

// ends makes the channel continue without a further key frame.
func (s *fakeChannel) ends() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.only = true
}

func (s *fakeChannel) has(port uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ports[port]) > 0
}

// loses makes the network lose a share of the datagrams.
func (s *fakeChannel) loses(share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = share
}

// counts returns how many datagrams were lost, and how many bursts were requested.
func (s *fakeChannel) counts() (lost, bursts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost, s.bursts
}

// copyTo starts or stops the copy to a viewer's port, with a burst if it is requested.
func (s *fakeChannel) copyTo(port uint16, viewer string, on, burst bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on && s.skips > 0 {
		s.skips--
		return
	}
	if on && burst {
		s.bursts++
		for _, raw := range s.group.Group() {
			s.to(port, raw)
		}
	}
	if s.ports[port] == nil {
		s.ports[port] = map[string]bool{}
	}
	if s.ports[port][viewer] = true; !on {
		delete(s.ports[port], viewer)
	}
	if len(s.ports[port]) == 0 {
		delete(s.ports, port)
	}
}

func (s *fakeChannel) falls(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
	if silent {
		s.group.Clear()
	}
}
