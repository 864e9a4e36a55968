package interop

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/pion/rtp"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

const (
	channelRate = 1e6
	watchPort   = 6000
	gatePort    = 8440
)

// withChannel has a producer's gateway at the server's site, and one for viewers at the
// client's.
func withChannel(t *lab.Topology) {
	t.Hosts = append(t.Hosts, lab.Host{Name: "in1", Agent: true}, lab.Host{Name: "out1", Agent: true}, lab.Host{Name: "out2", Agent: true})
	for host, at := range map[string]string{"in1": "s2", "out1": "s1", "out2": "s1"} {
		t.Links = append(t.Links, lab.Both(host, at, delayline.Params{}))
	}
}

// buildChannels builds such a network, with a channel that is on the air. Gateway out1 is the
// test's own.
func buildChannels(t *testing.T, topology lab.Topology) *world {
	t.Helper()
	withChannel(&topology)
	w := buildWith(t, topology, map[string]testbed.CinemaRole{
		"in1": testbed.CinemaIngress, "out1": testbed.CinemaOwn, "out2": testbed.CinemaEgress,
	}, "", func(*lab.Lab) string { return "" })
	w.channel()
	return w
}

// channel declares one, and waits until it is on the air.
func (w *world) channel() {
	w.t.Helper()
	w.must(w.AddChannel(w.t.Context(), cinema.ChannelSpec{Name: "c1", Number: 1, Source: "test:", BitRate: channelRate}))
	w.must(w.WaitOnAir(w.t.Context()))
}

// watcher is an egress gateway with one viewer, that counts what this gets.
type watcher struct {
	*testbed.RawViewer
	conn *net.UDPConn
	wg   sync.WaitGroup

	mu   sync.Mutex
	last map[uint32]uint16 // sequence numbers, by SSRC
	seen counted
}

// counted is what has come.
type counted struct {
	packets int
	again   int // of them, those that came a second time or behind a later one
	bytes   uint64
}

// watch has a host be a gateway at an address of its own, with a viewer of the channel.
func (w *world) watch(host string, addr netip.Addr) *watcher {
	w.t.Helper()
	gateway, err := testbed.StartRawGatewayAt(w.t.Context(), w.Deployment, host, addr)
	w.must(err)
	w.t.Cleanup(gateway.Close)
	g := &watcher{RawViewer: gateway.ViewerAt(watchPort), last: map[uint32]uint16{}}
	w.must(w.lab.Host(host).Do(func() (err error) {
		g.conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, watchPort)))
		return err
	}))
	g.wg.Go(g.receive)
	w.t.Cleanup(func() { _ = g.conn.Close(); g.wg.Wait() })
	w.must(g.Watch(w.t.Context(), "c1"))
	w.must(testbed.Poll(w.t.Context(), "the channel", func() error {
		if n := g.count().packets; n < 50 {
			return fmt.Errorf("%d packets have come", n)
		}
		return nil
	}))
	return g
}

func (g *watcher) receive() {
	b := make([]byte, 2048)
	for {
		n, err := g.conn.Read(b)
		if err != nil {
			return // closed
		}
		g.take(b[:n])
	}
}

// take counts a packet; RTCP is left out.
func (g *watcher) take(b []byte) {
	var h rtp.Header
	if len(b) > 1 && b[1]&0x7f >= 64 && b[1]&0x7f < 96 {
		return
	}
	if _, err := h.Unmarshal(b); err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if last, known := g.last[h.SSRC]; known && int16(h.SequenceNumber-last) <= 0 {
		g.seen.again++
	} else {
		g.last[h.SSRC] = h.SequenceNumber
	}
	g.seen.packets++
	g.seen.bytes += uint64(len(b))
}

// count is what has come so far.
func (g *watcher) count() counted {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen
}

// channelGoesOn waits until a hundred packets more of the channel have come, each once and in order,
// and returns what has come.
func (w *world) channelGoesOn(g *watcher) (came counted) {
	w.t.Helper()
	const more = 100
	before := g.count()
	w.must(testbed.Poll(w.t.Context(), "the channel to go on", func() error {
		now := g.count()
		came = counted{now.packets - before.packets, now.again - before.again, now.bytes - before.bytes}
		if came.packets < more {
			return fmt.Errorf("%d packets more have come", came.packets)
		}
		return nil
	}))
	if came.again > 0 {
		w.t.Errorf("%d of %d packets of the channel came twice or out of order", came.again, came.packets)
	}
	return came
}
