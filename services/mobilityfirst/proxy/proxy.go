package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// Window is how many bytes of a connection are under way, in each direction.
	Window = 1 << 20
	// MaxConnections bounds the connections that are open at once.
	MaxConnections = 512
	// MaxConnectionsOf bounds the open connections with one name.
	MaxConnectionsOf = 128
	// maxUnderway and maxChunks are how many bytes, each chunk with what the host counts for it, and how many
	// chunks to one name are not taken; more wait.
	maxUnderway, maxChunks = hostapi.MaxUnderway / 4, hostapi.MaxSends / 16
	// maxResets is how many resets there are that are not taken, maxResetsOf how many of one name; others
	// find out by themselves.
	maxResets, maxResetsOf = 256, 16
	// farewell is how long others are told that a proxy ends.
	farewell = time.Second
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
	// Service is that of the chunks that it sends, as frame.Multihoming.
	Service frame.Service
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
	resets  chan connKey

	mu         sync.Mutex
	conns      map[connKey]*conn
	peers      map[frame.GUID]*peer
	resetsLeft int
	ended      bool
}

// connKey is a connection with another side.
type connKey struct {
	peer   frame.GUID
	number uint64
}

// peer is another side, with which there are connections.
type peer struct {
	name     frame.GUID
	conns    int
	underway int           // bytes of chunks that it has not taken
	chunks   int           // of these
	resets   int           // that it has not taken
	room     chan struct{} // closed when there may be room for another
}

// New returns a Proxy that does nothing before it runs.
func New(o Options) *Proxy {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialWithin}).DialContext
	}
	return &Proxy{Options: o, tasks: tasks.New(), resets: make(chan connKey, maxResets), resetsLeft: maxResets, conns: map[connKey]*conn{}, peers: map[frame.GUID]*peer{}}
}

// Run takes chunks until ctx ends, or the host does: then the error says so. All connections are over then. The
// client is to be closed after it, not before: others are told.
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
		c.start(message{kind: kindOpen, number: c.number}, credit(c.number, Window))
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
		ctx, cancel := c.until(ctx, dialWithin)
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
	return p.Allow == nil || slices.Contains(p.Allow, name)
}

// add notes a connection.
func (p *Proxy) add(key connKey, tcp net.Conn) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.find(key.peer)
	defer p.settle(x)
	switch {
	case p.ended:
		return nil, errors.New("the proxy has ended")
	case x.conns >= MaxConnectionsOf || len(p.conns) >= MaxConnections || len(p.conns) >= MaxConnections*3/4 && x.conns >= MaxConnectionsOf/8:
		return nil, fmt.Errorf("there are %d connections with it, at most %d, and %d in all, at most %d", x.conns, MaxConnectionsOf, len(p.conns), MaxConnections)
	}
	x.conns++
	c := &conn{proxy: p, peer: x, connKey: key, tcp: tcp, news: make(chan struct{}, 1), more: make(chan struct{}, 1), over: make(chan struct{})}
	p.conns[key] = c
	return c, nil
}

// find is another side; settle forgets it when nothing is counted of it any more.
func (p *Proxy) find(name frame.GUID) *peer {
	x := p.peers[name]
	if x == nil {
		x = &peer{name: name, room: make(chan struct{})}
		p.peers[name] = x
	}
	return x
}

func (p *Proxy) settle(x *peer) {
	if x.conns == 0 && x.chunks == 0 && x.resets == 0 {
		delete(p.peers, x.name)
	}
}

// remove forgets a connection.
func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c.connKey] != c {
		return
	}
	delete(p.conns, c.connKey)
	c.peer.conns--
	p.settle(c.peer)
}

// reset has another side forget a connection, unless too many resets are not taken. It does not wait.
func (p *Proxy) reset(key connKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.find(key.peer)
	if p.resetsLeft == 0 || x.resets >= maxResetsOf {
		return
	}
	p.resetsLeft--
	x.resets++
	p.resets <- key // there is room: it has as much as there may be resets
}

// sendReset sends a reset.
func (p *Proxy) sendReset(ctx context.Context, key connKey) error {
	m := message{kind: kindReset, number: key.number}
	taken := func(error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		x := p.find(key.peer)
		p.resetsLeft++
		x.resets--
		p.settle(x)
	}
	err := p.Client.Send(ctx, key.peer, p.Service, m.appendTo(nil), taken)
	if err != nil {
		taken(err)
	}
	return err
}

// sendResets sends what is in p.resets.
func (p *Proxy) sendResets(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-p.resets:
			if p.sendReset(ctx, key) != nil {
				return
			}
		}
	}
}

// end ends all connections, and tells others so.
func (p *Proxy) end() {
	p.mu.Lock()
	p.ended = true
	all := make([]*conn, 0, len(p.conns))
	for _, c := range p.conns {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.fail()
	}
	p.tasks.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	for len(p.resets) > 0 {
		if p.sendReset(ctx, <-p.resets) != nil {
			return
		}
	}
}
