package testbed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Dialogue is a client and a server that exchange small messages over one TCP connection, as
// control traffic does: a request each interval, and an answer.
type Dialogue struct {
	Client, Server Node
	To             netip.AddrPort
	Interval       time.Duration
	For            time.Duration
	// Bytes is the size of a message.
	Bytes int
}

// answerTimeout bounds the time of one answer.
const answerTimeout = 10 * time.Second

// Run returns how long each answer took. A request that must wait for the previous answer is sent
// late, and the next one immediately after it.
func (e Dialogue) Run(ctx context.Context) ([]time.Duration, error) {
	listener, err := listenAt(e.Server, "tcp", e.To)
	if err != nil {
		return nil, fmt.Errorf("dialogue: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer listener.Close()
	wg.Go(func() { e.answer(listener) })
	conn, err := dialAt(ctx, e.Client, "tcp", e.To)
	if err != nil {
		return nil, fmt.Errorf("dialogue: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	return e.ask(ctx, conn)
}

func (e Dialogue) ask(ctx context.Context, conn net.Conn) ([]time.Duration, error) {
	var took []time.Duration
	message := make([]byte, e.Bytes)
	tick := time.NewTicker(e.Interval)
	defer tick.Stop()
	for end := time.Now().Add(e.For); time.Now().Before(end); {
		began := time.Now()
		if err := conn.SetDeadline(began.Add(answerTimeout)); err != nil {
			return took, err
		}
		if _, err := conn.Write(message); err != nil {
			return took, fmt.Errorf("dialogue: request: %w", err)
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			return took, fmt.Errorf("dialogue: answer: %w", err)
		}
		took = append(took, time.Since(began))
		select {
		case <-ctx.Done():
			return took, context.Cause(ctx)
		case <-tick.C:
		}
	}
	return took, nil
}

// answer serves the one client.
func (e Dialogue) answer(listener net.Listener) {
	conn, err := listener.Accept()
	if err != nil {
		return // No client has connected.
	}
	defer conn.Close()
	message := make([]byte, e.Bytes)
	for {
		if _, err := io.ReadFull(conn, message); err != nil {
			return
		}
		if _, err := conn.Write(message); err != nil {
			return
		}
	}
}

func listenAt(n Node, kind string, at netip.AddrPort) (l net.Listener, err error) {
	err = n.Do(func() error {
		l, err = (&net.ListenConfig{}).Listen(context.Background(), kind, at.String())
		return err
	})
	return l, err
}

// dialAt connects from a node. The address is literal, because looking up a name would leave the
// namespace.
func dialAt(ctx context.Context, n Node, kind string, to netip.AddrPort) (c net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err = n.Do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, kind, to.String())
		return err
	})
	return c, err
}
