package testbed

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Newcomers simulates many clients behind one port of the network, and as many servers behind
// another. Each connection is between a client and a server that have not exchanged packets lately,
// so that its first packet and the answer need the controller.
type Newcomers struct {
	clients, servers *frames
	count            int
	next             int // index of the next pair

	mu    sync.Mutex
	begun map[uint32]time.Time // times of the SYNs that have not been answered, by sequence number
	took  []time.Duration
}

// Contacts holds the results of connections.
type Contacts struct {
	Took []time.Duration // from the SYN to its answer, of the connections that were answered
	Lost int
}

const newcomersPort = 80

// newcomer returns the addresses of the n-th client or server.
func newcomer(side byte, n int) (openflow.MAC, netip.Addr) {
	high, low := byte(n/250), byte(1+n%250)
	return openflow.MAC{0x02, 0x4e, 0, side, high, low}, netip.AddrFrom4([4]byte{172, 16 + side, high, low})
}

const clientSide, serverSide = 0, 1

// OpenNewcomers opens interfaces of two hosts for count clients and as many servers, at most
// 60,000. Close ends them.
func OpenNewcomers(clients, servers Inside, name string, count int) (n *Newcomers, err error) {
	n = &Newcomers{count: count, begun: map[uint32]time.Time{}}
	if n.clients, err = openFrames(clients, name); err != nil {
		return nil, err
	}
	if n.servers, err = openFrames(servers, name); err != nil {
		n.clients.Close()
		return nil, err
	}
	n.clients.listen(func(f []byte, at time.Time) { n.take(n.clients, clientSide, f, at) })
	n.servers.listen(func(f []byte, at time.Time) { n.take(n.servers, serverSide, f, at) })
	return n, nil
}

// Close closes both interfaces.
func (n *Newcomers) Close() {
	n.clients.Close()
	n.servers.Close()
}

// All calls f for each client and each server.
func (n *Newcomers) All(f func(openflow.MAC, netip.Addr)) {
	for _, side := range []byte{clientSide, serverSide} {
		for i := range n.count {
			f(newcomer(side, i))
		}
	}
}

// Announce sends an ARP announcement of each client and server, one pair each interval.
func (n *Newcomers) Announce(ctx context.Context, interval time.Duration) error {
	p := newPace(interval)
	defer p.stop()
	for i := 0; i < n.count && p.wait(ctx); i++ {
		for side, by := range []*frames{n.clients, n.servers} {
			mac, addr := newcomer(byte(side), i)
			if err := by.send(packet.AppendARPRequest(nil, mac, addr, addr, 0)); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// lostAfter is how long to wait for the answer to a SYN.
const lostAfter = 3 * time.Second

// Connect opens a connection each interval during d, and waits for the answers.
func (n *Newcomers) Connect(ctx context.Context, interval, d time.Duration) (Contacts, error) {
	p := newPace(interval)
	defer p.stop()
	for time.Since(p.began) < d && p.wait(ctx) {
		if err := n.open(); err != nil {
			return Contacts{}, err
		}
	}
	if err := tasks.Sleep(ctx, lostAfter); err != nil {
		return Contacts{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c := Contacts{Took: n.took, Lost: len(n.begun)}
	n.took = nil
	clear(n.begun)
	return c, nil
}

// pair returns the next pair. Each client has a connection with each server before any pair
// repeats.
func (n *Newcomers) pair() (client, server int) {
	client, server = n.next%n.count, (n.next+n.next/n.count)%n.count
	n.next++
	return client, server
}

// open sends the SYN of the next pair's connection.
func (n *Newcomers) open() error {
	number := uint32(n.next)
	c, s := n.pair()
	client, from := newcomer(clientSide, c)
	server, to := newcomer(serverSide, s)
	frame := packet.AppendTCP(nil, packet.Frame{Src: client, Dst: server}, packet.TCPSegment{
		Src: netip.AddrPortFrom(from, 1024+uint16(number)%60000), Dst: netip.AddrPortFrom(to, newcomersPort), Flags: packet.SYN, Seq: number,
	})
	n.mu.Lock()
	n.begun[number] = time.Now()
	n.mu.Unlock()
	return n.clients.send(frame)
}

// take answers a SYN or an ARP request, or records that a SYN was answered.
func (n *Newcomers) take(by *frames, side byte, frame []byte, at time.Time) {
	h, err := packet.Parse(frame)
	if err != nil {
		return
	}
	switch {
	case h.Has(packet.ARP):
		n.resolve(by, side, &h)
	case h.IsSYN() && side == serverSide:
		_ = by.send(packet.AppendTCP(nil, packet.Frame{Src: h.EthDst, Dst: h.EthSrc}, packet.TCPSegment{ // A packet that cannot be sent is lost.
			Src: h.Destination(), Dst: h.Source(), Flags: packet.SYN | packet.ACK, Seq: h.Seq, Ack: h.Seq + 1,
		}))
	case h.Has(packet.TCP) && side == clientSide && h.TCPFlags&packet.ACK != 0:
		n.answered(h.Seq, at)
	}
}

func (n *Newcomers) answered(number uint32, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	began, ok := n.begun[number]
	if ok {
		delete(n.begun, number)
		n.took = append(n.took, at.Sub(began))
	}
}

// resolve answers an ARP request for an address of this side.
func (n *Newcomers) resolve(by *frames, side byte, h *packet.Headers) {
	if h.ARPOp != packet.ARPRequest || !h.Dst.Is4() {
		return
	}
	a := h.Dst.As4()
	index := int(a[2])*250 + int(a[3]) - 1
	if index < 0 || index >= n.count {
		return
	}
	if mac, addr := newcomer(side, index); addr == h.Dst {
		_ = by.send(packet.AppendARPReply(nil, h, mac)) // A sender that gets no answer will ask again.
	}
}
