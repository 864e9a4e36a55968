package proxy

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/mobilityfirst/host"
	"github.com/sluice-net/sluice/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/mobilityfirst/hosttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for.
const patience = 30 * time.Second

// names is a host without links, on which names find each other.
func names(t *testing.T) (open func() *hostapi.Client) {
	t.Helper()
	socket, _ := hosttest.Run(t, host.Options{})
	return func() *hostapi.Client {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c, err := hostapi.Open(t.Context(), socket, key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// run runs a proxy, and gives where it listens if it has another side.
func run(t *testing.T, o Options) (p *Proxy, at string) {
	t.Helper()
	p = New(o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		if err := p.Run(ctx); err != nil && !errors.Is(err, hostapi.ErrClosed) {
			t.Error(err)
		}
	})
	if o.To != (frame.GUID{}) {
		l := listen(t)
		at = l.Addr().String()
		all.Go(func() {
			if err := p.Serve(ctx, l); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })
	return p, at
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// serve has a server do something with each connection, and gives where it is.
func serve(t *testing.T, f func(c *net.TCPConn)) string {
	t.Helper()
	l := listen(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { defer c.Close(); f(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().String()
}

func dial(t *testing.T, at string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// empty waits until a proxy has no connection, and has counted all of them out.
func empty(t *testing.T, p *Proxy) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		p.mu.Lock()
		conns, peers := len(p.conns), len(p.peers)
		p.mu.Unlock()
		if conns == 0 && peers == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections with %d others are left", conns, peers)
		}
	}
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

// What goes into a connection comes out, in both directions at one time, with the ends of both; many at once.
func TestConnections(t *testing.T) {
	open := names(t)
	far, near := open(), open()
	server, _ := run(t, Options{Client: far, Connect: serve(t, echo)})
	client, at := run(t, Options{Client: near, To: far.Name})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			want := make([]byte, i*300_000)
			_, _ = rand.Read(want)
			c := dial(t, at)
			go func() { _, _ = c.Write(want); _ = c.CloseWrite() }()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d: %v", len(got), len(want), err)
			}
		})
	}
	all.Wait()
	empty(t, server)
	empty(t, client)
}

// One that takes nothing holds up no other, and holds no more than its window.
func TestSlowConnection(t *testing.T) {
	open := names(t)
	far, near := open(), open()
	stop := make(chan struct{})
	at := serve(t, func(c *net.TCPConn) {
		b := make([]byte, 1)
		if _, _ = io.ReadFull(c, b); b[0] == 's' {
			<-stop
			return
		}
		_, _ = c.Write(b)
		echo(c)
	})
	server, _ := run(t, Options{Client: far, Connect: at})
	_, at = run(t, Options{Client: near, To: far.Name})
	var all sync.WaitGroup
	for range 10 {
		slow := dial(t, at)
		all.Go(func() { _, _ = slow.Write(bytes.Repeat([]byte{'s'}, 64<<20)) })
	}
	for range 10 {
		quick := dial(t, at)
		want := bytes.Repeat([]byte{'q'}, 2<<20)
		go func() { _, _ = quick.Write(want); _ = quick.CloseWrite() }()
		if got, err := io.ReadAll(quick); err != nil || !bytes.Equal(got, want) {
			t.Errorf("beside slow ones: %d bytes of %d: %v", len(got), len(want), err)
		}
	}
	server.mu.Lock()
	for _, c := range server.conns {
		c.mu.Lock()
		if c.bytes > Window {
			t.Errorf("%d bytes are kept of a connection", c.bytes)
		}
		c.mu.Unlock()
	}
	server.mu.Unlock()
	close(stop)
	all.Wait()
}

// Who may not connect, or where there is no server, finds its connection reset; as does one whose other end is.
func TestReset(t *testing.T) {
	open := names(t)
	nobody := listen(t)
	_ = nobody.Close()
	for name, o := range map[string]Options{
		"no server":            {Connect: nobody.Addr().String()},
		"another name":         {Connect: serve(t, echo), Allow: []frame.GUID{{1}}},
		"nowhere to connect":   {},
		"the server resets it": {Connect: serve(t, func(c *net.TCPConn) { _ = c.SetLinger(0) })},
	} {
		t.Run(name, func(t *testing.T) {
			o.Client = open()
			server, _ := run(t, o)
			client, at := run(t, Options{Client: open(), To: o.Client.Name})
			c := dial(t, at)
			if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the connection ends with %v", err)
			}
			empty(t, server)
			empty(t, client)
		})
	}
}

// Another side that does what it may not loses its connections, and nobody else does.
func TestHostile(t *testing.T) {
	open := names(t)
	far, near, x := open(), open(), open()
	server, _ := run(t, Options{Client: far, Connect: serve(t, echo)})
	_, at := run(t, Options{Client: near, To: far.Name})
	good := dial(t, at)
	if _, err := good.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(good, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	say := func(all ...message) {
		t.Helper()
		for _, m := range all {
			if err := x.Send(t.Context(), far.Name, 0, m.appendTo(nil), func(error) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	go func() {
		for {
			c, err := x.Receive(t.Context())
			if err != nil || x.Take(c) != nil {
				return
			}
		}
	}()
	block := make([]byte, Window/2+1)
	for i := range uint64(2 * MaxConnectionsOf) {
		say(message{kindOpen, i, nil})
	}
	server.mu.Lock()
	if n := server.peers[x.Name]; n != nil && n.conns > MaxConnectionsOf {
		t.Errorf("%d connections with one name", n.conns)
	}
	server.mu.Unlock()
	say(message{kindOpen, 1, nil}, message{kindData, 2, block}, message{kindData, 2, block}, message{kindData, 2, block})
	say(credit(3, Window), credit(3, 1), credit(4, Window+1), message{kindEnd, 5, nil}, message{kindEnd, 5, nil}, message{kindEnd, 6, nil}, message{kindData, 6, block})
	say(message{kindData, 1 << 40, block}, message{kindEnd, 1 << 41, nil}, message{9, 1, nil}, message{kindReset, 1 << 42, nil})
	for i := range uint64(2 * MaxConnectionsOf) {
		say(message{kindReset, i, nil})
	}
	if _, err := good.Write([]byte("after")); err != nil {
		t.Fatal(err)
	}
	_ = good.CloseWrite()
	if got, err := io.ReadAll(good); err != nil || string(got) != "after" {
		t.Errorf("beside it %q, %v", got, err)
	}
	empty(t, server)
}

func FuzzParse(f *testing.F) {
	for _, m := range []message{{kindOpen, 1, nil}, {kindData, 2, []byte{3}}, credit(4, 5), {kindEnd, 6, nil}, {kindReset, 7, nil}} {
		f.Add(m.appendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parse(b); err == nil && !bytes.Equal(m.appendTo(nil), b) {
			t.Errorf("%x is read as %+v", b, m)
		}
	})
}
