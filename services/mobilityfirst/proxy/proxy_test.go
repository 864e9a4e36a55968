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

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
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
		return hosttest.Open(t, socket, key)
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

// What has come for a connection whose both ends have said all is brought, however long TCP takes, though the other
// side has forgotten the connection.
func TestSlowTail(t *testing.T) {
	open := names(t)
	far, near := open(), open()
	want := make([]byte, 800_000)
	_, _ = rand.Read(want)
	server, _ := run(t, Options{Client: far, Connect: serve(t, func(c *net.TCPConn) {
		_, _ = io.ReadAll(c)
		_, _ = c.Write(want)
	})})
	client, at := run(t, Options{Client: near, To: far.Name})
	c := dial(t, at)
	_ = c.SetReadBuffer(64 << 10)
	_, _ = c.Write([]byte("all"))
	_ = c.CloseWrite()
	empty(t, server)
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d: %v", len(got), len(want), err)
	}
	empty(t, client)
}

// Many small writes to one that takes nothing hold up no other, and cost no more than their bytes.
func TestSmallWrites(t *testing.T) {
	open := names(t)
	deaf, far, near := open(), open(), open()
	_, _ = run(t, Options{Client: far, Connect: serve(t, echo)})
	p, at := run(t, Options{Client: near, To: far.Name})
	away := &conn{proxy: p, connKey: connKey{deaf.Name, 1}, done: make(chan struct{})}
	p.mu.Lock()
	away.peer = p.find(deaf.Name)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var err error
	for range maxChunks + 1 {
		if err = away.send(ctx, message{kind: kindData, number: 1, body: []byte{1}}); err != nil {
			break
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("more than %d chunks are under way to one: %v", maxChunks, err)
	}
	c := dial(t, at)
	_, _ = c.Write([]byte("beside"))
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "beside" {
		t.Errorf("beside it %q, %v", got, err)
	}
	x := &conn{proxy: p, done: make(chan struct{}), dataReady: make(chan struct{}, 1)}
	for i := range uint64(100_000) {
		x.handle(message{kind: kindData, body: []byte{1}, offset: i})
	}
	if len(x.received) > 1 || x.bytes != 100_000 {
		t.Errorf("%d bytes in %d blocks", x.bytes, len(x.received))
	}
}

// A connection of which something is missing ends.
func TestGap(t *testing.T) {
	open := names(t)
	far, x := open(), open()
	server, _ := run(t, Options{Client: far, Connect: serve(t, echo)})
	for _, m := range []message{{kind: kindOpen, number: 1}, credit(1, Window), {kind: kindData, number: 1, body: []byte("one")}, {kind: kindEnd, number: 1, offset: 4}} {
		if err := x.Send(t.Context(), far.Name, 0, m.appendTo(nil), func(error) {}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		c, err := x.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Take(c); err != nil {
			t.Fatal(err)
		}
		m, err := parse(c.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if m.kind == kindEnd {
			t.Fatal("it has ended as if all had come")
		}
		if m.kind == kindReset {
			break
		}
	}
	go takeAll(t, x)
	empty(t, server)
}

// takeAll takes what comes.
func takeAll(t *testing.T, x *hostapi.Client) {
	for {
		c, err := x.Receive(t.Context())
		if err != nil || x.Take(c) != nil {
			return
		}
	}
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
			c, err := net.Dial("tcp", at)
			if err == nil { // or it is reset before this program has seen it begin
				t.Cleanup(func() { _ = c.Close() })
				_ = c.SetDeadline(time.Now().Add(patience))
				_, err = io.ReadAll(c)
			}
			if !errors.Is(err, syscall.ECONNRESET) {
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
	go takeAll(t, x)
	block := make([]byte, Window/2+1)
	for i := range uint64(2 * MaxConnectionsPerName) {
		say(message{kind: kindOpen, number: i})
	}
	server.mu.Lock()
	if n := server.peers[x.Name]; n != nil && n.conns > MaxConnectionsPerName {
		t.Errorf("%d connections with one name", n.conns)
	}
	server.mu.Unlock()
	say(message{kind: kindOpen, number: 1}, message{kind: kindData, number: 2, body: block}, message{kind: kindData, number: 2, body: block}, message{kind: kindData, number: 2, body: block})
	say(credit(3, Window), credit(3, 1), credit(4, Window+1), message{kind: kindEnd, number: 5}, message{kind: kindEnd, number: 5}, message{kind: kindEnd, number: 6}, message{kind: kindData, number: 6, body: block})
	say(message{kind: kindData, number: 1 << 40, body: block}, message{kind: kindEnd, number: 1 << 41}, message{kind: 9, number: 1}, message{kind: kindReset, number: 1 << 42})
	for i := range uint64(2 * MaxConnectionsPerName) {
		say(message{kind: kindReset, number: i})
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
	for _, m := range []message{{kind: kindOpen, number: 1}, {kind: kindData, number: 2, body: []byte{3}, offset: 8}, credit(4, 5), {kind: kindEnd, number: 6, offset: 9}, {kind: kindReset, number: 7}} {
		f.Add(m.appendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parse(b); err == nil && !bytes.Equal(m.appendTo(nil), b) {
			t.Errorf("%x is read as %+v", b, m)
		}
	})
}
