package sos

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestSmallTransfers carries connections with one byte or none, and every order
// of closing.
func TestSmallTransfers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sossmall", wan), options{})
	cases := []struct {
		name   string
		port   uint16
		server func(*net.TCPConn)
		client func(*net.TCPConn) error
	}{
		{"one byte down", 80, func(c *net.TCPConn) { _, _ = c.Write([]byte{7}) }, wantBytes(7)},
		{"one byte up and down", 81, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }, func(c *net.TCPConn) error {
			if _, err := c.Write([]byte{9}); err != nil {
				return err
			}
			if err := c.CloseWrite(); err != nil {
				return err
			}
			return wantBytes(9)(c)
		}},
		{"no byte, server closes first", 82, func(*net.TCPConn) {}, wantBytes()},
		{"no byte, client closes first", 83, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }, func(c *net.TCPConn) error {
			if err := c.CloseWrite(); err != nil {
				return err
			}
			return wantBytes()(c)
		}},
		{"both close at once", 84, func(c *net.TCPConn) { _ = c.CloseWrite(); _, _ = io.Copy(io.Discard, c) }, func(c *net.TCPConn) error {
			if err := c.CloseWrite(); err != nil {
				return err
			}
			return wantBytes()(c)
		}},
		{"client resets", 85, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }, func(c *net.TCPConn) error { return c.SetLinger(0) }},
		{"server resets", 86, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)); _ = c.SetLinger(0) }, func(c *net.TCPConn) error {
			if _, err := c.Write([]byte{1}); err != nil {
				return err
			}
			if _, _, err := drain(c, testTimeout); !errors.Is(err, syscall.ECONNRESET) {
				return fmt.Errorf("%v, want a reset", err)
			}
			return nil
		}},
		{"answer after half-close", 87, func(c *net.TCPConn) {
			all, _ := io.ReadAll(c)
			_, _ = c.Write(all[:3])
		}, func(c *net.TCPConn) error {
			if _, err := c.Write([]byte{1, 2, 3, 4}); err != nil {
				return err
			}
			if err := c.CloseWrite(); err != nil {
				return err
			}
			return wantBytes(1, 2, 3)(c)
		}},
	}
	for _, k := range cases {
		w.serve(k.port, k.server)
		before := len(w.sessions("past"))
		c := w.mustDial(k.port)
		if err := k.client(c); err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
		_ = c.Close()
		w.eventually(k.name+": the session is over", func() bool { return len(w.sessions("past")) == before+1 })
		if r := w.sessions("past")[0]; r.Setup.Total == 0 {
			t.Errorf("%s: not carried by agents: %s", k.name, r.How)
		} else {
			t.Logf("%s: %s", k.name, r.How)
		}
	}
	w.clean()
}

// wantBytes returns a function that expects exactly these bytes and then the end.
func wantBytes(want ...byte) func(*net.TCPConn) error {
	return func(c *net.TCPConn) error {
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("read %v, %w; want %v", got, err, want)
		}
		return nil
	}
}

// TestJumboFrames carries a transfer over links of jumbo frames.
func TestJumboFrames(t *testing.T) {
	t.Parallel()
	o := wan
	o.MTU = 9000
	w := newWorld(t, lab.WAN("sosjumbo", o), options{})
	w.carry(20<<20, func(net.Conn) {})
}

// TestSlowReader stops the reader of a transfer in either direction until its sender is
// blocked. The agents' memory stays bounded meanwhile, and every byte arrives when the
// readers go on.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosslow", wan), options{})
	const size = 40 << 20
	read := make(chan struct{})
	sums := make(chan string, 1)
	w.serve(80, func(c *net.TCPConn) { _, _ = copyContent(c, 1, size) })
	w.serve(81, func(c *net.TCPConn) {
		select {
		case <-read:
		case <-t.Context().Done():
		}
		s, _, _ := drain(c, 2*testTimeout)
		sums <- s
	})
	down, up := w.mustDial(80), w.mustDial(81)
	sent := make(chan error, 1)
	go func() {
		_, err := copyContent(up, 2, size)
		_ = up.CloseWrite()
		sent <- err
	}()
	var before uint64
	still := 0
	w.eventually("both senders are blocked", func() bool {
		var moved uint64
		list := w.sessions("live")
		for _, r := range list {
			moved += r.BytesUp + r.BytesDown
		}
		if still++; len(list) < 2 || moved < 2<<20 || moved != before {
			still = 0
		}
		before = moved
		return still > 75 // looks, in whose time agents report several times
	})
	for _, a := range w.agentInfos() {
		t.Logf("agent %s: %d bytes buffered, %d bytes of memory", a.Name, a.Load.BufferedBytes, a.Load.MemoryBytes)
		if a.Load.MemoryBytes > 300<<20 {
			t.Errorf("agent %s uses %d bytes of memory for two stopped readers", a.Name, a.Load.MemoryBytes)
		}
	}
	select {
	case err := <-sent:
		t.Errorf("the sender was not stopped: %v", err)
		sent <- err
	default:
	}
	close(read)
	w.wantContent(down, 1, size)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if got := <-sums; got != sum(2, size) {
		t.Error("wrong bytes arrived at the slow server")
	}
	_, _ = down.Close(), up.Close()
	w.clean()
}

// TestSlowReaderAfterBothEnds has a client close its side, and read only long after the
// server has sent everything and closed: the bytes that wait at the client's agent still
// belong to the session, and the switches have to keep forwarding it.
func TestSlowReaderAfterBothEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("soslate", wan), options{})
	const size = 48 << 10 // more than the client's buffer, less than with that of its agent
	closed := make(chan error, 1)
	w.serve(80, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		if err == nil {
			_, err = io.CopyN(c, content(7), size)
		}
		if err == nil {
			err = c.Close()
		}
		closed <- err
	})
	c := w.mustDial(80)
	if err := c.SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-closed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(testTimeout):
		t.Fatal("the server has not got rid of its content")
	}
	pause.For(4*time.Second, "longer than rules outlive a session that has ended")
	if len(w.serviceRules("s1")) == 0 {
		t.Fatal("the session's rules are gone while its client has not read")
	}
	w.wantContent(c, 7, size)
	w.clean()
}

// TestSYNFlood floods a whitelisted port with first packets of clients that do
// not exist; a transfer goes on, and nothing grows without bound.
func TestSYNFlood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosflood", wan), options{})
	const size = 20 << 20
	w.download(80, 1, size)
	w.serve(81, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	c := w.mustDial(80)
	w.live()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.wantContent(c, 1, size)
	}()
	w.flood(5000, w.serverAddr(81))
	<-done
	_ = c.Close()
	var st struct {
		Sessions int `json:"sessions"`
		Setups   int `json:"setups"`
	}
	w.get("status", &st)
	t.Logf("after the flood: %+v", st)
	w.echoAfterFlood()
	w.within(2*testTimeout, "the flood's sessions are over", func() bool {
		w.get("status", &st)
		return st.Sessions == 0
	})
	w.clean()
}

// echoAfterFlood shows that an ordinary connection still works.
func (w *world) echoAfterFlood() {
	w.serve(82, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w.echo(82)
}

// flood sends n first packets from invented addresses out of the client's host.
func (w *world) flood(n int, to netip.AddrPort) {
	w.t.Helper()
	send := w.rawSender("client")
	for i := range n {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(1 + i/250), byte(1 + i%250)}), uint16(20000+i))
		if err := send(synPacket(from, to)); err != nil && !errors.Is(err, syscall.ENOBUFS) {
			w.t.Fatal(err)
		}
	}
}

// TestDataPortRefusesStrangers sends garbage, bytes with a wrong key and a replay to an
// agent's data port: sessions are not disturbed.
func TestDataPortRefusesStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosstr", wan), options{})
	w.carry(5<<20, func(net.Conn) {
		for _, text := range [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n"), bytes.Repeat([]byte{0}, 4096), bytes.Repeat([]byte{0xff}, 4096)} {
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			c, err := w.dial(ctx, netip.AddrPortFrom(w.lab.Host("y").Addr(), 7444))
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(text)
			if _, n, err := drain(c, testTimeout); timedOut(err) || n > 0 {
				t.Errorf("a stranger was answered with %d bytes, %v", n, err)
			}
			_ = c.Close()
		}
	})
}

// TestControlPortRefusesStrangers calls an agent without the controller's certificate, and
// with an agent's.
func TestControlPortRefusesStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosctlp", wan), options{})
	ask := func(config *tls.Config) error {
		c, err := agentapi.NewClient("https://"+w.agents["y"].cfg.Listen, config, w.lab.Control().DialContext)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		_, err = c.Sessions(ctx)
		return err
	}
	if err := ask(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}); err == nil { //nolint:gosec // the stranger does not care whom it asks
		t.Error("the agent answers without a certificate")
	}
	other, err := pki.Client(pki.Files{
		Cert: filepath.Join(w.keys, "x.crt"), Key: filepath.Join(w.keys, "x.key"), CA: filepath.Join(w.keys, "ca.crt"),
	}, pki.RoleAgent)
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(other); err == nil {
		t.Error("the agent answers another agent as if it were the controller")
	}
	w.clean()
}
