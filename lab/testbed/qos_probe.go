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

// Probe asks over UDP, a request each interval whatever has become of those before, and
// a server returns each request as it is. Nothing is sent again, so that every answer
// shows how long the network took, and none how long a timer.
type Probe struct {
	Client, Server Node
	To             netip.AddrPort
	Interval       time.Duration
	For            time.Duration
	// Bytes of a message; at least probeHeader.
	Bytes int
}

// probeHeader is the number of a request and the time at which it went out.
const probeHeader = 16

// probeLast is how long answers to the last requests are waited for.
const probeLast = time.Second

// Answer is what came back of a request.
type Answer struct {
	Request int // from 1
	Took    time.Duration
}

// Run returns how many requests went out, and the answers by request.
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
	if err := conn.SetReadDeadline(time.Now().Add(probeLast)); err != nil {
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

// echo returns what arrives until the socket is closed.
func echo(server net.PacketConn) {
	message := make([]byte, 2048)
	for {
		n, from, err := server.ReadFrom(message)
		if err != nil {
			return
		}
		_, _ = server.WriteTo(message[:n], from) // what is not sent is lost, as on the way
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
