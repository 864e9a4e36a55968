package egress

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/cinema/media"
)

// second returns what a channel of 1 Mbit/s sends in a second: 30 pictures of four packets, of
// which the first is a key frame, and 50 packets of sound.
func second(sequence *uint16, stamp uint32) (all [][]byte) {
	const pictures, parts, size = 30, 4, 950
	slice := make([]byte, size)
	for i := range pictures {
		for k := range parts {
			slice[0], slice[1] = 0x7c, 0x01 // a fragment
			if i == 0 {
				slice[1] = 0x05
			}
			if k == 0 {
				slice[1] |= 0x80
			}
			if k == parts-1 {
				slice[1] |= 0x40
			}
			if i == 0 && k == 0 {
				*sequence++
				all = append(all, rtpPacket(media.VideoType, false, *sequence, stamp, 1, 0x67, 0x42, 0xc0))
			}
			*sequence++
			all = append(all, rtpPacket(media.VideoType, k == parts-1, *sequence, stamp+uint32(i)*3000, 1, slice...))
		}
	}
	for i := range uint16(50) {
		all = append(all, rtpPacket(media.AudioType, true, uint16(stamp/media.VideoClock)*50+i, uint32(i)*960+stamp/media.VideoClock*media.AudioClock, 2, slice[:160]...))
	}
	return all
}

// cpu returns the processor time of the thread.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchPath measures what a second of a channel costs one viewer, from the datagrams in the
// kernel to the sending; flush sends what waits.
func benchPath(b *testing.B, w *world, v *viewer, flush func()) {
	w.studios["news"].copyTo(v.in.port(), v.id, false, false)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	studio, socket := listenUDP(b), listenUDP(b)
	from := netip.MustParseAddrPort(studio.LocalAddr().String())
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(socket.LocalAddr().String())).AddrPort()
	v.mu.Lock()
	v.awaitKeyFrame(from)
	v.mu.Unlock()
	buffer, sequence, seconds := make([]byte, media.MaxDatagram+1), uint16(0), uint32(0)
	now, spent, bits := time.Now(), time.Duration(0), 0
	for b.Loop() {
		all := second(&sequence, seconds*media.VideoClock)
		seconds++
		for _, raw := range all {
			if _, err := studio.WriteToUDPAddrPort(raw, to); err != nil {
				b.Fatal(err)
			}
			bits += 8 * len(raw)
		}
		began := cpu(b)
		for range all {
			_ = socket.SetReadDeadline(v.due())
			n, from, err := socket.ReadFromUDPAddrPort(buffer)
			if err != nil {
				b.Fatal(err)
			}
			now = now.Add(time.Second / time.Duration(len(all)))
			v.receive(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), buffer[:n], now)
			flush()
		}
		spent += cpu(b) - began
	}
	b.ReportMetric(float64(bits)/float64(b.N)/1e6, "Mbit/s")
	b.ReportMetric(float64(time.Second)/(float64(spent)/float64(b.N)), "viewers/core")
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "cpu-µs/s")
	if c := v.splicer.Counts(); c.Lost > 0 || c.Packets < uint64(b.N)*100 {
		b.Errorf("%+v", c)
	}
}

func listenUDP(b *testing.B) *net.UDPConn {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(newIngress(), 0)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	enlargeReceiveBuffer(c)
	return c
}

// BenchmarkViewerByWebRTC measures the cost of a viewer by WebRTC.
func BenchmarkViewerByWebRTC(b *testing.B) {
	w := newWorld(b, nil, "news")
	w.joins("news")
	benchPath(b, w, w.all()[0], func() {})
}

// BenchmarkViewerByWebSocket measures the cost of a viewer by WebSocket.
func BenchmarkViewerByWebSocket(b *testing.B) {
	w := newWorld(b, nil, "news")
	p := w.watches("news")
	w.until("picture and sound", p.sees(1))
	v := w.all()[0]
	prev := v.out.(*webSocketSink)
	mine := newWebSocketSink(v, prev.conn) // its messages are written here
	v.mu.Lock()
	v.out = mine
	v.mu.Unlock()
	benchPath(b, w, v, func() {
		for {
			m, ok := mine.queue.pop()
			if !ok {
				return
			}
			if err := mine.conn.Write(context.Background(), websocket.MessageBinary, m.data); err != nil {
				b.Fatal(err)
			}
		}
	})
	v.mu.Lock()
	v.out = prev
	v.mu.Unlock()
}
