package testbed

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Probe sends requests over UDP, one each interval whether or not earlier ones were answered, and a
// server returns each request unchanged. Nothing is retransmitted, so that every answer shows the
// delay of the network, and not that of a timer.
type Probe struct {
	Client, Server Node
	To             netip.AddrPort
	Interval       time.Duration
	For            time.Duration
	// Bytes is the size of a message, at least probeHeader.
	Bytes int
}

// probeHeader is the size of the number of a request and of the time at which it was sent.
const probeHeader = 16

// probeWait is how long to wait for answers to the last requests.
const probeWait = time.Second

// Answer describes the answer to a request.
type Answer struct {
	Request int // number of the request, from 1
	Took    time.Duration
}

// Run returns the number of requests that were sent, and the answers in the order of the requests.
func (p Probe) Run(ctx context.Context) (sent int, answers []Answer, err error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	server, err := packetAt(p.Server, p.To)
	if err != nil {
		return 0, nil, fmt.Errorf("probe: %w", err)
	}
	defer server.Close()
	wg.Go(func() { echo(server) })
	conn, err := dialAt(ctx, p.Client, "udp", p.To)
	if err != nil {
		return 0, nil, fmt.Errorf("probe: %w", err)
	}
	defer conn.Close()
	began := time.Now()
	got := make(chan []Answer, 1)
	wg.Go(func() { got <- readAnswers(conn, began) })
	sent, err = p.ask(ctx, conn, began)
	if err != nil {
		return sent, nil, fmt.Errorf("probe: %w", err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(probeWait)); err != nil {
		return sent, nil, fmt.Errorf("probe: %w", err)
	}
	answers = <-got
	slices.SortFunc(answers, func(a, b Answer) int { return a.Request - b.Request })
	return sent, answers, nil
}

// ask sends the requests.
func (p Probe) ask(ctx context.Context, conn net.Conn, began time.Time) (sent int, err error) {
	message := make([]byte, max(p.Bytes, probeHeader))
	tick := time.NewTicker(p.Interval)
	defer tick.Stop()
	for time.Since(began) < p.For {
		select {
		case <-ctx.Done():
			return sent, context.Cause(ctx)
		case <-tick.C:
		}
		sent++
		binary.BigEndian.PutUint64(message, uint64(sent))
		binary.BigEndian.PutUint64(message[8:], uint64(time.Since(began)))
		if _, err := conn.Write(message); err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// readAnswers reads until the deadline, or until the connection is closed.
func readAnswers(conn net.Conn, began time.Time) (out []Answer) {
	message := make([]byte, 2048)
	for {
		n, err := conn.Read(message)
		if err != nil {
			return out
		}
		if n >= probeHeader {
			at := time.Duration(binary.BigEndian.Uint64(message[8:]))
			out = append(out, Answer{Request: int(binary.BigEndian.Uint64(message)), Took: time.Since(began) - at})
		}
	}
}

// echo returns each packet that arrives until the socket is closed.
func echo(server net.PacketConn) {
	message := make([]byte, 2048)
	for {
		n, from, err := server.ReadFrom(message)
		if err != nil {
			return
		}
		_, _ = server.WriteTo(message[:n], from) // A packet that cannot be sent counts as lost.
	}
}

// packetAt opens a UDP socket at a node.
func packetAt(n Node, at netip.AddrPort) (c net.PacketConn, err error) {
	err = n.Do(func() error {
		c, err = (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", at.String())
		return err
	})
	return c, err
}
