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

// Newcomers are many clients behind one port of the network and as many servers behind
// another. Each connection is between two of them that have not spoken lately, so that
// its first packet and the answer to it need the controller.
type Newcomers struct {
	clients, servers *frames
	count            int
	next             int // of the pairs

	mu    sync.Mutex
	begun map[uint32]time.Time // connections that have not been answered, by sequence number
	took  []time.Duration
}

// Contacts is what became of connections.
type Contacts struct {
	Took []time.Duration // from the SYN to its answer, of those that were answered
	Lost int
}

const newcomersPort = 80

// newcomer is the n-th client or server.
func newcomer(side byte, n int) (openflow.MAC, netip.Addr) {
	high, low := byte(n/250), byte(1+n%250)
	return openflow.MAC{0x02, 0x4e, 0, side, high, low}, netip.AddrFrom4([4]byte{172, 16 + side, high, low})
}

const clientSide, serverSide = 0, 1

// OpenNewcomers has so many clients and servers, at most 60,000, speak by interfaces of
// two hosts. Close ends it.
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

// Close ends them.
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

// Announce has each say to all that it is here, a client and a server at a time.
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

// lostAfter is how long the answer to a SYN is waited for.
const lostAfter = 3 * time.Second

// Connect opens a connection each interval for a time, and waits for the answers.
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

// pair are the next two that speak: each client with each server before any does again.
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

// take answers what arrives, or notes that it was answered.
func (n *Newcomers) take(by *frames, side byte, frame []byte, at time.Time) {
	h, err := packet.Parse(frame)
	if err != nil {
		return
	}
	switch {
	case h.Has(packet.ARP):
		n.resolve(by, side, &h)
	case h.IsSYN() && side == serverSide:
		_ = by.send(packet.AppendTCP(nil, packet.Frame{Src: h.EthDst, Dst: h.EthSrc}, packet.TCPSegment{ // lost, if it fails
			Src: h.Destination(), Dst: h.Source(), Flags: packet.SYN | packet.ACK, Seq: h.Seq, Ack: h.Seq + 1,
		}))
	case h.Has(packet.TCP) && side == clientSide && h.TCPFlags&packet.ACK != 0:
		n.answered(h.Seq, at)
	}
}

func (n *Newcomers) answered(number uint32, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	began, is := n.begun[number]
	if is {
		delete(n.begun, number)
		n.took = append(n.took, at.Sub(began))
	}
}

// resolve answers who asks for the address of one of this side.
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
		_ = by.send(packet.AppendARPReply(nil, h, mac)) // who asks will ask again
	}
}
