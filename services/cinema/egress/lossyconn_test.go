package egress

import (
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
)

// lossyConn is a player's connection to the gateway, which loses packets or is cut silently.
type lossyConn struct {
	net.PacketConn
	cut  atomic.Bool
	lose atomic.Bool // every twentieth media packet
	read int
}

// WriteTo implements net.PacketConn.
func (w *lossyConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if w.cut.Load() {
		return len(b), nil
	}
	return w.PacketConn.WriteTo(b, to)
}

// ReadFrom implements net.PacketConn.
func (w *lossyConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		n, from, err := w.PacketConn.ReadFrom(b)
		const rtp = 0x80
		if err != nil || !w.lose.Load() || n < 500 || b[0]&0xc0 != rtp {
			return n, from, err
		}
		if w.read++; w.read%20 != 0 {
			return n, from, err
		}
	}
}

// joinsBy makes a player watch a channel through a lossyConn.
func (w *world) joinsBy(channel string) (*player, *lossyConn) {
	w.t.Helper()
	raw, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	by := &lossyConn{PacketConn: raw}
	var s webrtc.SettingEngine
	mux := webrtc.NewICEUDPMux(nil, by)
	w.t.Cleanup(func() { mux.Close() })
	s.SetICEUDPMux(mux)
	p := w.newPlayer(s)
	res, text := w.ask(http.MethodPost, "/whep/"+channel, "application/sdp", p.offer())
	p.accept(res, text)
	w.until("a picture", func() bool { return len(p.packets("video")) > 0 })
	return p, by
}

// TestDisappearingViewer checks that a viewer who disappears silently is removed after a while.
func TestDisappearingViewer(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Times.Silence = 2 * time.Second }, "news")
	p, by := w.joinsBy("news")
	by.cut.Store(true)
	w.until("nobody", func() bool { return w.count() == 0 })
	w.until("the controller to know", func() bool { wants := w.wanted(); return len(wants[len(wants)-1]) == 0 })
	p.closes()
}

// TestLostPacketsAreSentAgain checks that packets lost on the way to a player are retransmitted
// on request.
func TestLostPacketsAreSentAgain(t *testing.T) {
	w := newWorld(t, nil, "news")
	p, by := w.joinsBy("news")
	by.lose.Store(true)
	whole := func() bool {
		all := p.packets("video")
		if len(all) < 200 {
			return false
		}
		var numbers []int
		first := all[0].sequence
		for _, x := range all[:200] {
			numbers = append(numbers, int(x.sequence-first))
		}
		slices.Sort(numbers)
		late := 0
		for i, x := range all[1:] {
			if int16(x.sequence-all[i].sequence) < 0 {
				late++
			}
		}
		return late >= 3 && numbers[150] == 150 // each once, some late
	}
	w.until("what was lost", whole)
}

// TestGatewayThatEnds checks that a gateway that ends tells its viewers and the controller.
func TestGatewayThatEnds(t *testing.T) {
	w := newWorld(t, nil, "news")
	p, q := w.joins("news"), w.joins("news")
	w.end()
	wants := w.wanted()
	if gone := wants[len(wants)-2:]; len(gone[0]) != 0 || len(gone[1]) != 0 {
		t.Errorf("the controller was told of %v", wants)
	}
	for _, x := range []*player{p, q} {
		w.until("the end of the connection", func() bool {
			s := x.pc.ConnectionState()
			return s != webrtc.PeerConnectionStateConnected
		})
		x.continuous()
	}
}
