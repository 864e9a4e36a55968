package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

func (p *pair) dataPort(a *Agent) string {
	return netip.AddrPortFrom(a.cfg.DataAddr, a.DataPorts()[0]).String()
}

// closed checks that the agent closes c without sending anything.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(testTimeout))
	b, err := io.ReadAll(c)
	if len(b) != 0 {
		t.Errorf("the agent said %q", b)
	}
	if err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("not closed: %v", err)
	}
}

// TestGarbage checks that a data port closes a connection with garbage at once, and a silent one
// after the opening time.
func TestGarbage(t *testing.T) {
	p := newPair(t, func(x, y *Config) { y.OpeningTimeout = 2 * time.Second })
	var all []net.Conn
	for _, g := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01", "SOS\x00\x02\x01", strings.Repeat("\xff", 1<<16), "SOS\x00\x01\x01short", "S", ""} {
		c, err := net.Dial("tcp", p.dataPort(p.y))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, g)
		all = append(all, c)
	}
	for _, c := range all {
		closed(t, c)
	}
	exchange(t, p.open(agentapi.Params{}), 1000, 1000) // other sessions are not affected
}

// TestStrangers checks that connections of strangers are bounded in number: further ones are closed
// at once, and there is room for others when the opening time is over.
func TestStrangers(t *testing.T) {
	p := newPair(t, func(x, y *Config) { y.MaxUnauthenticated, y.OpeningTimeout = 4, 5*time.Second })
	var held []net.Conn
	for range 4 {
		c, err := net.Dial("tcp", p.dataPort(p.y))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	eventually(t, "all are in", func() bool { return len(p.y.acceptor.unauthenticated) == len(held) })
	c, err := net.Dial("tcp", p.dataPort(p.y))
	if err == nil {
		defer c.Close()
		closed(t, c)
	} else if !errors.Is(err, unix.ECONNRESET) { // it was closed before connect returned
		t.Fatal(err)
	}
	exchange(t, p.open(agentapi.Params{}), 1000, 1000) // this connection is expected by its peer
	eventually(t, "the first have been closed", func() bool { return len(p.y.acceptor.unauthenticated) == 0 })
}

// announced prepares a session at Y only and returns a function that opens it.
func (p *pair) announced(t *testing.T) (f *flow, dial func(o wire.Opening, key agentapi.Key) (net.Conn, []byte)) {
	t.Helper()
	f = &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
	_, y := p.requests(f, netip.AddrPortFrom(p.clientAddr, 4242), agentapi.Params{})
	if _, err := p.toY.Prepare(context.Background(), y); err != nil {
		t.Fatal(err)
	}
	return f, func(o wire.Opening, key agentapi.Key) (net.Conn, []byte) {
		c, err := net.Dial("tcp", p.dataPort(p.y))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		raw := o.AppendTo(nil, key[:])
		if _, err := c.Write(raw); err != nil {
			t.Fatal(err)
		}
		return c, raw
	}
}

// TestOpenings checks that openings with the wrong key, for an unknown session or replayed get no
// answer.
func TestOpenings(t *testing.T) {
	p := newPair(t, nil)
	f, dial := p.announced(t)
	good := wire.Opening{Session: f.id, Generation: 1, Nonce: [16]byte{1}}

	c, _ := dial(good, agentapi.NewKey())
	closed(t, c)
	other := good
	other.Session = agentapi.NewSessionID()
	c, _ = dial(other, f.key)
	closed(t, c)
	beyond := good
	beyond.Index = uint16(p.y.cfg.MaxConnections)
	c, _ = dial(beyond, f.key)
	closed(t, c)

	c, raw := dial(good, f.key)
	var answer [wire.AnswerSize]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		t.Fatalf("the good opening: %v", err)
	}
	if _, err := wire.ParseAnswer(answer[:], raw, f.key[:]); err != nil {
		t.Fatal(err)
	}
	replay, err := net.Dial("tcp", p.dataPort(p.y))
	if err != nil {
		t.Fatal(err)
	}
	defer replay.Close()
	_, _ = replay.Write(raw)
	closed(t, replay)
	eventually(t, "the good connection alone serves the session", func() bool {
		return len(*p.y.session(f.id).conns.Load()) == 1
	})
}

// TestImpostor checks that the dialling side sends no byte to a peer that cannot prove the key.
func TestImpostor(t *testing.T) {
	p := newPair(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.5:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	got := make(chan int64, 8)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			raw := make([]byte, wire.OpeningSize)
			_, _ = io.ReadFull(c, raw)
			wrong := agentapi.NewKey()
			_, _ = c.Write(wire.Answer{}.AppendTo(nil, raw, wrong[:]))
			n, _ := io.Copy(io.Discard, c)
			select {
			case got <- n:
			default:
			}
			_ = c.Close()
		}
	}()
	f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
	x, _ := p.requests(f, netip.AddrPortFrom(p.clientAddr, 4242), agentapi.Params{})
	at := ln.Addr().(*net.TCPAddr).AddrPort()
	x.Peer = agentapi.Peer{Addr: at.Addr(), DataPorts: []uint16{at.Port()}}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if _, err := p.toX.Prepare(ctx, x); err != nil {
		t.Fatal(err)
	}
	if err := p.toX.Commit(ctx, f.id); control.CodeOf(err) != control.CodeNoPeer {
		t.Errorf("commit: %v, want %s", err, control.CodeNoPeer)
	}
	if n := <-got; n != 0 {
		t.Errorf("the impostor got %d bytes", n)
	}
}

// TestBadFrames checks that a peer that has proved the key and then sends invalid frames loses only
// the connection.
func TestBadFrames(t *testing.T) {
	p := newPair(t, nil)
	f, dial := p.announced(t)
	for i, frame := range [][]byte{
		{99, 15: 0},
		wire.Header{Kind: wire.Ack, Number: 7}.AppendTo(nil),
		wire.Header{Kind: wire.Data, Length: 1, Number: 1 << 40}.AppendTo(nil),
		wire.Header{Kind: wire.Data, Length: wire.MaxChunk + 1}.AppendTo(nil),
	} {
		c, _ := dial(wire.Opening{Session: f.id, Generation: uint32(i + 1)}, f.key)
		var answer [wire.AnswerSize]byte
		if _, err := io.ReadFull(c, answer[:]); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(frame)
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("frame %d: %v", i, err)
		}
	}
}

// TestStrangeClient checks that a session's port accepts only the announced client.
func TestStrangeClient(t *testing.T) {
	p := newPair(t, nil)
	f := &flow{p: p, id: agentapi.NewSessionID(), key: agentapi.NewKey()}
	from, err := reserve(netip.AddrPortFrom(p.clientAddr, 0), "")
	if err != nil {
		t.Fatal(err)
	}
	x, y := p.requests(f, netip.AddrPortFrom(p.clientAddr, from.port), agentapi.Params{})
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if _, err := p.toY.Prepare(ctx, y); err != nil {
		t.Fatal(err)
	}
	at, err := p.toX.Prepare(ctx, x)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(at.Addr, at.Port)
	c, err := net.Dial("tcp", to.String())
	switch {
	case errors.Is(err, unix.ECONNRESET): // it was refused before Dial returned
	case err != nil:
		t.Fatal(err)
	default:
		defer c.Close()
		closed(t, c)
	}
	if f.client, err = from.dial(ctx, to); err != nil {
		t.Fatalf("the announced client: %v", err)
	}
	_ = f.client.Close()
}
