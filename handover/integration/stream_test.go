package integration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/heartbeat"
	"github.com/sluice-net/sluice/lab"
)

// stream sends numbered packets at a steady rate from one host to an address, and
// counts where they arrive what has become of them.
type stream struct {
	w    *world
	out  *net.UDPConn
	in   *net.UDPConn // nil if radios listen
	off  []func()     // ends the radios' listening
	quit chan struct{}
	// sending and receiving are the goroutines; sent is the sender's until it ends.
	sending, receiving sync.WaitGroup

	sent []time.Time // by number
	err  error

	// witness sees, as nobody here can of himself, when a core stood still.
	witness *heartbeat.Witness

	mu       sync.Mutex
	arrivals []arrival
}

// arrival is a packet that came, at a radio or at a socket.
type arrival struct {
	number int
	by     int
	at     time.Time
}

// gap is a run of packets that never arrived.
type gap struct {
	first, packets int
	at             time.Time // when the first was sent
	// took is from the sending of the first that was lost to that of the first
	// that was not.
	took time.Duration
}

// report is what has become of a stream.
type report struct {
	sent, lost int
	doubled    int         // came again at the same place
	copies     int         // came at another place as well
	again      []time.Time // when the doubled ones came
	gaps       []gap
	longest    time.Duration // of gaps
	silence    time.Duration // longest time between two arrivals
	stall      time.Duration // longest time between two sendings
	// stalls are the times in which a core stood still for longStall, by the witness.
	stalls []heartbeat.Stall
}

const (
	// longStall is for how long a core stands still before a switch, or a device that
	// merges copies, may be late with a packet for that.
	longStall = 25 * time.Millisecond
	// aftermath is for how long after a stall packets are late that waited in it: both
	// branches of a seamless move are served for that long.
	aftermath = 200 * time.Millisecond
)

// unexplained counts the packets that came again at a time when no core had stood still. A
// switch that is kept from running goes by rules of before for a while, and a device takes
// a copy for a packet that is later than it merges them.
func (r *report) unexplained() int {
	n := 0
	for _, at := range r.again {
		if !slices.ContainsFunc(r.stalls, func(s heartbeat.Stall) bool { return s.At.Before(at) && at.Before(s.At.Add(s.Took+aftermath)) }) {
			n++
		}
	}
	return n
}

func (r report) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("%d sent, %d lost in %d gaps (longest %v), %d doubled, %d copies; longest silence at the receiver %v, at the sender %v; heartbeat: %v",
		r.sent, r.lost, len(r.gaps), round(r.longest), r.doubled, r.copies, round(r.silence), round(r.stall), r.stalls)
}

// maxStream is how many packets a stream can count.
const maxStream = 1 << 17

// stream starts packets from the server to an address that a host has.
func (w *world) stream(at string, to netip.AddrPort, perSecond int) *stream {
	w.t.Helper()
	return w.streamBetween(w.domain.Server, at, to, perSecond)
}

// streamBetween starts packets from one host to an address of another.
func (w *world) streamBetween(from, at string, to netip.AddrPort, perSecond int) *stream {
	w.t.Helper()
	s := w.newStream(from)
	s.in = w.udp(w.lab.Host(at), netip.AddrPortFrom(netip.IPv4Unspecified(), to.Port()))
	w.t.Cleanup(func() { _ = s.in.Close() })
	s.receiving.Go(s.receive)
	s.sending.Go(func() { s.send(to, time.Second/time.Duration(perSecond)) })
	return s
}

// streamToRadios starts packets from the server to an address whose packets
// radios see.
func (w *world) streamToRadios(radios []*radio, to netip.AddrPort, perSecond int) *stream {
	w.t.Helper()
	s := w.newStream(w.domain.Server)
	for i, r := range radios {
		s.off = append(s.off, r.watch(func(f frame) {
			if f.to == to {
				s.note(f.payload, i)
			}
		}))
	}
	s.sending.Go(func() { s.send(to, time.Second/time.Duration(perSecond)) })
	return s
}

func (w *world) newStream(from string) *stream {
	w.t.Helper()
	s := &stream{
		w: w, quit: make(chan struct{}), out: w.udp(w.lab.Host(from), netip.AddrPort{}),
		sent: make([]time.Time, 0, maxStream), arrivals: make([]arrival, 0, maxStream),
	}
	w.t.Cleanup(func() { _ = s.out.Close() })
	var err error
	if s.witness, err = heartbeat.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.witness.Stop)
	return s
}

// udp opens a socket on a host.
func (w *world) udp(h *lab.LiveHost, local netip.AddrPort) *net.UDPConn {
	w.t.Helper()
	var c *net.UDPConn
	err := h.Do(func() (err error) {
		if !local.IsValid() {
			local = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
		}
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(local))
		return err
	})
	if err != nil {
		w.t.Fatalf("UDP socket on %s: %v", h.Name(), err)
	}
	_ = c.SetReadBuffer(8 << 20)
	return c
}

// send sends what is due, at each tick.
func (s *stream) send(to netip.AddrPort, every time.Duration) {
	start := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	packet := make([]byte, 100)
	for len(s.sent) < maxStream {
		for due := int(time.Since(start) / every); len(s.sent) < min(due, maxStream); {
			binary.BigEndian.PutUint32(packet, uint32(len(s.sent)))
			s.sent = append(s.sent, time.Now())
			if _, err := s.out.WriteToUDPAddrPort(packet, to); err != nil {
				s.err = err
				return
			}
		}
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
	}
}

func (s *stream) receive() {
	buf := make([]byte, 2048)
	for {
		n, _, err := s.in.ReadFromUDPAddrPort(buf)
		if err != nil {
			return // the deadline that stop sets, or the end of the test
		}
		s.note(buf[:n], 0)
	}
}

func (s *stream) note(payload []byte, by int) {
	if len(payload) < 4 {
		return
	}
	if n := binary.BigEndian.Uint32(payload); n < maxStream {
		s.mu.Lock()
		s.arrivals = append(s.arrivals, arrival{int(n), by, time.Now()})
		s.mu.Unlock()
	}
}

// since are the arrivals after a time at one place.
func (s *stream) since(t time.Time, by int) (first arrival, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.arrivals) - 1; i >= 0 && s.arrivals[i].at.After(t); i-- {
		if s.arrivals[i].by == by {
			first, ok = s.arrivals[i], true
		}
	}
	return first, ok
}

// came says whether a packet has arrived.
func (s *stream) came(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.arrivals[max(0, len(s.arrivals)-100):], func(a arrival) bool { return a.number == number })
}

// count is how many packets have arrived.
func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.arrivals)
}

// stop ends the stream, waits for what is on the way, and counts.
func (s *stream) stop() report {
	s.w.t.Helper()
	close(s.quit)
	s.sending.Wait()
	s.w.poll(time.Second, func() bool { return s.came(len(s.sent) - 1) })
	if s.in != nil {
		_ = s.in.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // copies may follow
	}
	s.receiving.Wait()
	if s.in != nil {
		_ = s.in.Close() // its port is for the next one
	}
	for _, off := range s.off {
		off()
	}
	if s.err != nil && !errors.Is(s.err, os.ErrClosed) {
		s.w.t.Errorf("the stream ended by itself: %v", s.err)
	}
	if len(s.sent) == maxStream {
		s.w.t.Errorf("the stream ended by itself: %d packets is all it can count", maxStream)
	}
	return s.report()
}

func (s *stream) report() report {
	r := report{sent: len(s.sent)}
	s.witness.Stop()
	if r.sent > 0 {
		r.stalls = s.witness.Stalls(s.sent[0], time.Now(), longStall)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	came := make([]bool, len(s.sent))
	seen := map[[2]int]bool{}
	for i, a := range s.arrivals {
		key := [2]int{a.number, a.by}
		switch {
		case seen[key]:
			r.doubled++
			r.again = append(r.again, a.at)
		case came[a.number]:
			r.copies++
		}
		came[a.number], seen[key] = true, true
		if i > 0 {
			r.silence = max(r.silence, a.at.Sub(s.arrivals[i-1].at))
		}
	}
	for i := 1; i < len(s.sent); i++ {
		r.stall = max(r.stall, s.sent[i].Sub(s.sent[i-1]))
	}
	for i := 0; i < len(came); i++ {
		if came[i] {
			continue
		}
		g := gap{first: i, at: s.sent[i]}
		for ; i < len(came) && !came[i]; i++ {
			g.packets++
		}
		g.took = s.sent[min(i, len(came)-1)].Sub(s.sent[g.first])
		r.lost += g.packets
		r.longest = max(r.longest, g.took)
		r.gaps = append(r.gaps, g)
	}
	return r
}

// requireOnce is what the network's part of a seamless handover promises: every packet
// comes, and comes once at each place.
func requireOnce(t testing.TB, r report) {
	t.Helper()
	if n := r.unexplained(); r.lost > 0 || n > 0 {
		t.Errorf("%d packets lost in %d gaps; %d doubled at one place, of which %d when no core stood still", r.lost, len(r.gaps), r.doubled, n)
	}
}

// requireNoLoss is what a seamless handover promises.
func requireNoLoss(t testing.TB, r report) {
	t.Helper()
	if r.lost > 0 || r.doubled > 0 {
		t.Errorf("%d packets lost in %d gaps, %d doubled", r.lost, len(r.gaps), r.doubled)
	}
}
