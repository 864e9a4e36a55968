package cinema

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/pion/rtp"
	"golang.org/x/net/ipv4"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// rawGateway is an egress gateway whose viewers count packets and show nothing.
type rawGateway struct {
	*testbed.RawGateway
	w    *world
	host *lab.LiveHost
	wg   sync.WaitGroup

	mu      sync.Mutex
	sockets []*net.UDPConn
}

// newRawGateway adds a gateway on a host of the network, and waits until the controller knows
// it.
func newRawGateway(w *world, name string) *rawGateway {
	w.t.Helper()
	g := &rawGateway{w: w, host: w.lab.Host(name)}
	var err error
	g.RawGateway, err = testbed.StartRawGateway(w.t.Context(), w.Deployment, name)
	w.must(err)
	w.t.Cleanup(g.close)
	return g
}

func (g *rawGateway) close() {
	g.Close()
	g.mu.Lock()
	for _, c := range g.sockets {
		c.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}

// join adds a viewer of a channel.
func (g *rawGateway) join(channel string) *rawViewer {
	g.w.t.Helper()
	v := &rawViewer{g: g, flows: map[flow]*counts{}}
	g.w.must(g.host.Do(func() (err error) {
		v.conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(g.host.Addr(), 0)))
		return err
	}))
	g.mu.Lock()
	g.sockets = append(g.sockets, v.conn)
	g.mu.Unlock()
	v.raw = g.ViewerAt(v.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	v.id = v.raw.ID
	g.wg.Go(v.receive)
	g.w.must(v.watch(g.w.t.Context(), channel))
	return v
}

// rawViewer counts the packets that it gets, by flow.
type rawViewer struct {
	g    *rawGateway
	raw  *testbed.RawViewer
	id   string
	conn *net.UDPConn

	channels []string // channels that it gets

	mu    sync.Mutex
	flows map[flow]*counts
}

// flow is one medium of one channel.
type flow struct {
	from netip.AddrPort
	ssrc uint32
}

type counts struct {
	first, last   uint16
	missing       map[uint16]bool // sequence numbers before the last
	packets       int
	lost, doubled int
}

// watch makes the viewer get the given channels, and no others.
func (v *rawViewer) watch(ctx context.Context, channels ...string) error {
	v.channels = channels
	return v.raw.Watch(ctx, channels...)
}

// leave makes the viewer get nothing.
func (v *rawViewer) leave() {
	v.g.w.t.Helper()
	v.g.w.must(v.watch(v.g.w.t.Context()))
	v.conn.Close()
}

func (v *rawViewer) receive() {
	in := ipv4.NewPacketConn(v.conn)
	batch := make([]ipv4.Message, 32)
	for i := range batch {
		batch[i].Buffers = [][]byte{make([]byte, 2048)}
	}
	for {
		n, err := in.ReadBatch(batch, 0)
		if err != nil {
			return // closed
		}
		v.mu.Lock()
		for _, m := range batch[:n] {
			v.count(m.Addr.(*net.UDPAddr).AddrPort(), m.Buffers[0][:m.N])
		}
		v.mu.Unlock()
	}
}

// count counts a packet unless it is RTCP.
func (v *rawViewer) count(from netip.AddrPort, b []byte) {
	var h rtp.Header
	if len(b) > 1 && b[1]&0x7f >= 64 && b[1]&0x7f < 96 {
		return
	}
	if _, err := h.Unmarshal(b); err != nil {
		return
	}
	f := flow{netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), h.SSRC}
	c := v.flows[f]
	if c == nil {
		v.flows[f] = &counts{first: h.SequenceNumber, last: h.SequenceNumber, missing: map[uint16]bool{}, packets: 1}
		return
	}
	switch ahead := int16(h.SequenceNumber - c.last); {
	case c.packets < 1000 && int16(h.SequenceNumber-c.first) < 0:
		return // the first packet has overtaken it
	case ahead > 0:
		for n := c.last + 1; n != h.SequenceNumber; n++ {
			c.missing[n] = true
		}
		c.lost += int(ahead) - 1
		c.last = h.SequenceNumber
	case c.missing[h.SequenceNumber]: // it was overtaken by what went a shorter way
		delete(c.missing, h.SequenceNumber)
		c.lost--
	default:
		c.doubled++
	}
	c.packets++
}

// sum returns the counts of all flows together.
func (v *rawViewer) sum() (s counts) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.flows {
		s.packets += c.packets
		s.lost += c.lost
		s.doubled += c.doubled
	}
	return s
}

// got waits until the viewer has got that many more packets.
func (v *rawViewer) got(more int) {
	v.g.w.t.Helper()
	v.g.w.allGot([]*rawViewer{v}, more)
}
