package handover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
)

// packetRate is how many packets a second a stream has. It is low on purpose: what these tests say
// about packets must also hold on a busy machine.
const packetRate = 100

// stream sends numbered packets at a steady rate from one host to an address, and counts those
// that arrive.
type stream struct {
	w    *world
	out  *net.UDPConn
	in   *net.UDPConn // nil if radios listen
	off  []func()     // ends the radios' watches
	quit chan struct{}
	// sending and receiving are the goroutines; sent belongs to the sender until it ends.
	sending, receiving sync.WaitGroup

	sent int
	err  error

	mu       sync.Mutex
	arrivals []arrival
}

// arrival is a packet that has arrived, at a radio or at a socket.
type arrival struct{ number, by int }

// gap is a run of packets that never arrived.
type gap struct{ first, packets int }

// report is the result of a stream.
type report struct {
	sent, lost int
	doubled    int // arrived again at the same place
	copies     int // arrived at another place as well
	gaps       []gap
}

func (r report) String() string {
	return fmt.Sprintf("%d sent, %d lost in gaps %v, %d doubled, %d copies", r.sent, r.lost, r.gaps, r.doubled, r.copies)
}

// maxStream bounds the packets of a stream.
const maxStream = 1 << 17

// stream starts a stream from the server to an address of a host.
func (w *world) stream(at string, to netip.AddrPort) *stream {
	w.t.Helper()
	return w.streamBetween(w.domain.Server, at, to)
}

// streamBetween starts a stream from one host to an address of another.
func (w *world) streamBetween(from, at string, to netip.AddrPort) *stream {
	w.t.Helper()
	s := w.newStream(from)
	s.in = w.udp(w.lab.Host(at), netip.AddrPortFrom(netip.IPv4Unspecified(), to.Port()))
	w.t.Cleanup(func() { _ = s.in.Close() })
	s.receiving.Go(s.receive)
	s.sending.Go(func() { s.send(to) })
	return s
}

// streamToRadios starts a stream from the server to an address whose packets arrive at radios.
func (w *world) streamToRadios(radios []*radio, to netip.AddrPort) *stream {
	w.t.Helper()
	s := w.newStream(w.domain.Server)
	for i, r := range radios {
		s.off = append(s.off, r.watch(func(f frame) {
			if f.to == to {
				s.note(f.payload, i)
			}
		}))
	}
	s.sending.Go(func() { s.send(to) })
	return s
}

func (w *world) newStream(from string) *stream {
	w.t.Helper()
	s := &stream{w: w, quit: make(chan struct{}), out: w.udp(w.lab.Host(from), netip.AddrPort{})}
	w.t.Cleanup(func() { _ = s.out.Close() })
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

// send sends a packet at each tick. A delayed sender sends fewer, and none of them in a burst.
func (s *stream) send(to netip.AddrPort) {
	tick := time.NewTicker(time.Second / packetRate)
	defer tick.Stop()
	packet := make([]byte, 100)
	for s.sent < maxStream {
		binary.BigEndian.PutUint32(packet, uint32(s.sent))
		if _, err := s.out.WriteToUDPAddrPort(packet, to); err != nil {
			s.err = err
			return
		}
		s.sent++
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
		s.arrivals = append(s.arrivals, arrival{int(n), by})
		s.mu.Unlock()
	}
}

// came reports whether a packet has arrived.
func (s *stream) came(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.arrivals[max(0, len(s.arrivals)-100):], func(a arrival) bool { return a.number == number })
}

// count returns how many packets have arrived.
func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.arrivals)
}

// goesOn waits until packets arrive that were sent after the call, and some more.
func (s *stream) goesOn(what string) {
	s.w.t.Helper()
	came := s.count()
	s.w.eventually(what, func() bool { return s.count() >= came+packetRate/2 })
}

// stop ends the stream, waits for packets in flight, and returns the result.
func (s *stream) stop() report {
	s.w.t.Helper()
	close(s.quit)
	s.sending.Wait()
	s.w.poll(waitLimit, func() bool { return s.came(s.sent - 1) })
	if s.in != nil {
		_ = s.in.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // copies may follow
	}
	s.receiving.Wait()
	if s.in != nil {
		_ = s.in.Close() // the next stream needs its port
	}
	for _, off := range s.off {
		off()
	}
	if s.err != nil && !errors.Is(s.err, os.ErrClosed) {
		s.w.t.Errorf("the stream ended by itself: %v", s.err)
	}
	if s.sent == maxStream {
		s.w.t.Errorf("the stream ended by itself: %d packets is all it can count", maxStream)
	}
	return s.report()
}

func (s *stream) report() report {
	r := report{sent: s.sent}
	s.mu.Lock()
	defer s.mu.Unlock()
	came := make([]bool, s.sent)
	seen := map[arrival]bool{}
	for _, a := range s.arrivals {
		switch {
		case seen[a]:
			r.doubled++
		case came[a.number]:
			r.copies++
		}
		came[a.number], seen[a] = true, true
	}
	for i := 0; i < len(came); i++ {
		if came[i] {
			continue
		}
		g := gap{first: i}
		for ; i < len(came) && !came[i]; i++ {
			g.packets++
		}
		r.lost += g.packets
		r.gaps = append(r.gaps, g)
	}
	return r
}

// requireNoLoss fails the test if a packet of a stream has not arrived.
func requireNoLoss(t testing.TB, r report) {
	t.Helper()
	if r.lost > 0 {
		t.Errorf("%d packets of %d lost, in gaps %v", r.lost, r.sent, r.gaps)
	}
}

// connection is a TCP connection between a host and the server.
type connection struct {
	w    *world
	ends [2]net.Conn
	next byte
}

// connection connects a host to the server.
func (w *world) connection(host string) *connection {
	w.t.Helper()
	var l net.Listener
	err := w.lab.Host(w.domain.Server).Do(func() (err error) {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(w.domain.ServerAddr, 0).String())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	c := &connection{w: w}
	err = w.lab.Host(host).Do(func() (err error) {
		c.ends[0], err = net.DialTimeout("tcp4", l.Addr().String(), waitLimit)
		return err
	})
	if err != nil {
		w.t.Fatalf("%s connects to the server: %v", host, err)
	}
	w.t.Cleanup(func() { _ = c.ends[0].Close() })
	if c.ends[1], err = l.Accept(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.ends[1].Close() })
	return c
}

// works fails the test unless some data arrives in both directions, complete and in order.
func (c *connection) works(when string) {
	c.w.t.Helper()
	c.next++
	data := bytes.Repeat([]byte{c.next, 0, 1, 2, 3}, 2000)
	for _, way := range [][2]net.Conn{{c.ends[0], c.ends[1]}, {c.ends[1], c.ends[0]}} {
		deadline := time.Now().Add(waitLimit)
		if err := errors.Join(way[0].SetDeadline(deadline), way[1].SetDeadline(deadline)); err != nil {
			c.w.t.Fatal(err)
		}
		_, err := way[0].Write(data)
		got := make([]byte, len(data))
		if err == nil {
			_, err = io.ReadFull(way[1], got)
		}
		if err != nil {
			c.w.t.Fatalf("the connection does not work %s: %v", when, err)
		}
		if !bytes.Equal(got, data) {
			c.w.t.Fatalf("the connection has delivered other data than was sent %s", when)
		}
	}
}
