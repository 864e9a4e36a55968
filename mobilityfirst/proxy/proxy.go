package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/mobilityfirst/hostapi"
)

const (
	// Window is how many bytes of a connection are under way, in each direction.
	Window = 1 << 20
	// MaxConnections is how many there are at once, MaxConnectionsOf how many with one name.
	MaxConnections, MaxConnectionsOf = 512, 128
	// maxUnderway is how many bytes of chunks to one name are not taken; more wait.
	maxUnderway = 4 << 20
	// maxBlock is how many bytes of a connection go in one chunk.
	maxBlock = 256 << 10
	// dialWithin is how long a server may take to answer.
	dialWithin = 10 * time.Second
	// aliveEvery is how often the other side is told that a connection is there.
	aliveEvery = time.Minute
)

// Options are what a Proxy works with.
type Options struct {
	// Client is the name of this side.
	Client *hostapi.Client
	// To is the name of the other side, for connections that Serve accepts.
	To frame.GUID
	// Connect is where connections of other sides are brought, as "127.0.0.1:80"; empty for nowhere.
	Connect string
	// Allow are the names that may connect; nil for all.
	Allow []frame.GUID
	// Dial connects; nil for the ordinary way.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Log is where it says what fails; nil for nowhere.
	Log *slog.Logger
}

// Proxy carries TCP connections. Its methods may be called concurrently.
type Proxy struct {
	Options
	strange lograte.Limit // lines that others can cause
	tasks   *tasks.Group
	resets  chan outgoing

	mu    sync.Mutex
	conns map[connKey]*conn
	peers map[frame.GUID]*peer
	ended bool
}

// connKey is a connection with another side.
type connKey struct {
	peer   frame.GUID
	number uint64
}

// peer is another side, with which there are connections.
type peer struct {
	conns    int
	underway int           // bytes of chunks that it has not taken
	room     chan struct{} // closed when there may be room for another
}

// outgoing is a message for another side.
type outgoing struct {
	to frame.GUID
	message
}

// New returns a Proxy that does nothing before it runs.
func New(o Options) *Proxy {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialWithin}).DialContext
	}
	return &Proxy{Options: o, tasks: tasks.New(), resets: make(chan outgoing, 64), conns: map[connKey]*conn{}, peers: map[frame.GUID]*peer{}}
}

// Run takes chunks until ctx ends, or the host does: then the error says so. All connections are over then.
func (p *Proxy) Run(ctx context.Context) error {
	defer p.end()
	p.tasks.Start(p.sendResets)
	for {
		x, err := p.Client.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		p.take(x.From, x.Payload)
		if err := p.Client.Take(x); err != nil {
			return err
		}
	}
}

// Serve carries the connections that a listener accepts, until ctx ends; then the listener is closed.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		tcp, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listening at %v: %w", l.Addr(), err)
		case err != nil: // as that there are too many files: it passes
			p.strange.Warn(p.Log, "a connection was not accepted", "error", err)
			if tasks.Sleep(ctx, 100*time.Millisecond) != nil {
				return nil
			}
			continue
		}
		c, err := p.add(connKey{p.To, rand.Uint64()}, tcp)
		if err != nil {
			p.strange.Warn(p.Log, "a connection is refused", "from", tcp.RemoteAddr(), "error", err)
			_ = tcp.Close()
			continue
		}
		c.start(message{kindOpen, c.number, nil}, credit(c.number, Window))
	}
}

// take takes a message. It does not wait.
func (p *Proxy) take(from frame.GUID, b []byte) {
	m, err := parse(b)
	if err != nil {
		p.strange.Warn(p.Log, "a chunk is none of a proxy", "from", from)
		return
	}
	key := connKey{from, m.number}
	p.mu.Lock()
	c := p.conns[key]
	p.mu.Unlock()
	switch {
	case m.kind == kindOpen && c == nil:
		p.open(key)
	case c != nil:
		c.take(m)
	case m.kind != kindReset:
		p.reset(key)
	}
}

// open begins a connection to the server for another side.
func (p *Proxy) open(key connKey) {
	c, err := (*conn)(nil), error(nil)
	if !p.allows(key.peer) {
		err = errors.New("this name may not connect")
	} else {
		c, err = p.add(key, nil)
	}
	if err != nil {
		p.strange.Warn(p.Log, "a connection is refused", "from", key.peer, "error", err)
		p.reset(key)
		return
	}
	started := p.tasks.Start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, dialWithin)
		defer cancel()
		tcp, err := p.Dial(ctx, "tcp", p.Connect)
		if err != nil {
			p.strange.Warn(p.Log, "the server does not answer", "for", key.peer, "error", err)
			c.fail()
			return
		}
		c.bring(tcp)
		c.start(credit(c.number, Window))
	})
	if !started {
		c.fail()
	}
}

func (p *Proxy) allows(name frame.GUID) bool {
	if p.Connect == "" {
		return false
	}
	for _, other := range p.Allow {
		if other == name {
			return true
		}
	}
	return p.Allow == nil
}

// add notes a connection.
func (p *Proxy) add(key connKey, tcp net.Conn) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.peers[key.peer]
	if x == nil {
		x = &peer{room: make(chan struct{})}
	}
	switch {
	case p.ended:
		return nil, errors.New("the proxy has ended")
	case x.conns >= MaxConnectionsOf || len(p.conns) >= MaxConnections:
		return nil, fmt.Errorf("there are %d connections with it of %d, %d in all of %d", x.conns, MaxConnectionsOf, len(p.conns), MaxConnections)
	}
	x.conns++
	c := &conn{proxy: p, peer: x, connKey: key, tcp: tcp, news: make(chan struct{}, 1), more: make(chan struct{}, 1), over: make(chan struct{})}
	p.conns[key], p.peers[key.peer] = c, x
	return c, nil
}

// remove forgets a connection.
func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c.connKey] != c {
		return
	}
	delete(p.conns, c.connKey)
	if c.peer.conns--; c.peer.conns == 0 && p.peers[c.connKey.peer] == c.peer {
		delete(p.peers, c.connKey.peer)
	}
}

// reset has another side forget a connection. If there are too many to be told, it finds out by itself.
func (p *Proxy) reset(key connKey) {
	select {
	case p.resets <- outgoing{key.peer, message{kindReset, key.number, nil}}:
	default:
	}
}

// sendResets sends what is in p.resets.
func (p *Proxy) sendResets(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-p.resets:
			if p.Client.Send(ctx, o.to, 0, o.appendTo(nil), func(error) {}) != nil {
				return
			}
		}
	}
}

// end ends all connections.
func (p *Proxy) end() {
	p.mu.Lock()
	p.ended = true
	all := make([]*conn, 0, len(p.conns))
	for _, c := range p.conns {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.close()
	}
	p.tasks.Stop()
}
