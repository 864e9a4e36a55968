package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// Window is the maximum number of bytes in flight in each direction of a connection.
	Window = 1 << 20
	// MaxConnections limits the open connections.
	MaxConnections = 512
	// MaxConnectionsPerName limits the open connections with one name.
	MaxConnectionsPerName = 128
	// MaxConnectionsPerClient limits the open connections of one address among those that Serve
	// accepts.
	MaxConnectionsPerClient = MaxConnectionsPerName * 3 / 4
	// replaceableAfter is how long a connection has carried no data when it may be ended to make
	// room for another one.
	replaceableAfter = time.Minute
	// maxInFlight and maxChunks limit the bytes, including the host's overhead per chunk, and the
	// number of chunks to one name that have not been taken over; further ones wait.
	maxInFlight, maxChunks = hostapi.MaxUnderway / 4, hostapi.MaxSends / 16
	// maxResets limits the pending resets, and maxResetsPerName those to one name. Further
	// connections are not reset: the other side detects the end by itself.
	maxResets, maxResetsPerName = 256, 16
	// shutdownTime is how long a proxy that ends sends resets.
	shutdownTime = time.Second
	// maxBlock is the maximum number of bytes of a connection in one chunk.
	maxBlock = 256 << 10
	// dialTimeout is how long a server may take to answer.
	dialTimeout = 10 * time.Second
	// keepaliveInterval is the time between two keepalive messages.
	keepaliveInterval = time.Minute
)

// Options configures a Proxy.
type Options struct {
	// Client is the connection of this side's name to its host.
	Client *hostapi.Client
	// To is the name of the other side, for connections that Serve accepts.
	To frame.GUID
	// Connect is the address to which connections of other sides are forwarded, like
	// "127.0.0.1:80"; if it is empty they are refused.
	Connect string
	// Allow lists the names that may connect; nil allows all.
	Allow []frame.GUID
	// Service is the service of the proxy's chunks, like frame.Multihoming.
	Service frame.Service
	// Dial connects to servers; nil selects the ordinary dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Proxy carries TCP connections. Its methods may be called concurrently.
type Proxy struct {
	Options
	warnLimit lograte.Limit // for log lines that others can cause
	tasks     *tasks.Group
	resets    chan connKey

	mu         sync.Mutex
	conns      map[connKey]*conn
	peers      map[frame.GUID]*peer
	resetsLeft int
	ended      bool
}

// connKey identifies a connection.
type connKey struct {
	peer   frame.GUID
	number uint64
}

// peer is another side with connections.
type peer struct {
	name     frame.GUID
	conns    int
	inFlight int           // bytes of chunks that it has not taken over
	chunks   int           // the number of these chunks
	resets   int           // resets that it has not taken over
	room     chan struct{} // closed when there may be room for another chunk
}

// New returns a Proxy that does nothing until Run is called.
func New(o Options) *Proxy {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return &Proxy{Options: o, tasks: tasks.New(), resets: make(chan connKey, maxResets), resetsLeft: maxResets, conns: map[connKey]*conn{}, peers: map[frame.GUID]*peer{}}
}

// Run handles chunks until ctx ends or the host fails, which it returns as an error. It then ends
// all connections. The client must be closed after Run has returned, because Run still sends
// resets.
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
		p.handle(x.From, x.Payload)
		if err := p.Client.Take(x); err != nil {
			return err
		}
	}
}

// Serve carries the connections that a listener accepts until ctx ends, and then closes the
// listener.
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
		case err != nil: // such as too many open files, which is temporary
			p.warnLimit.Warn(p.Log, "a connection was not accepted", "error", err)
			if tasks.Sleep(ctx, 100*time.Millisecond) != nil {
				return nil
			}
			continue
		}
		c, err := p.add(connKey{p.To, rand.Uint64()}, clientOf(tcp), tcp)
		if err != nil {
			p.warnLimit.Warn(p.Log, "a connection is refused", "from", tcp.RemoteAddr(), "error", err)
			_ = tcp.Close()
			continue
		}
		c.start(message{kind: kindOpen, number: c.number}, credit(c.number, Window))
	}
}

// handle handles a message. It does not wait.
func (p *Proxy) handle(from frame.GUID, b []byte) {
	m, err := parse(b)
	if err != nil {
		p.warnLimit.Warn(p.Log, "a chunk is none of a proxy", "from", from)
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
		c.handle(m)
	case m.kind != kindReset:
		p.reset(key)
	}
}

// open connects to the server for another side.
func (p *Proxy) open(key connKey) {
	c, err := (*conn)(nil), error(nil)
	if !p.allows(key.peer) {
		err = errors.New("this name may not connect")
	} else {
		c, err = p.add(key, netip.Addr{}, nil)
	}
	if err != nil {
		p.warnLimit.Warn(p.Log, "a connection is refused", "from", key.peer, "error", err)
		p.reset(key)
		return
	}
	started := p.tasks.Start(func(ctx context.Context) {
		ctx, cancel := c.withTimeout(ctx, dialTimeout)
		defer cancel()
		tcp, err := p.Dial(ctx, "tcp", p.Connect)
		if err != nil {
			p.warnLimit.Warn(p.Log, "the server does not answer", "for", key.peer, "error", err)
			c.fail()
			return
		}
		c.setTCP(tcp)
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

// clientOf returns the address of a TCP connection's client, or that of its network if the client
// has a whole one.
func clientOf(tcp net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(tcp.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return clientaddr.Source(at.Addr()).Addr()
}

// add adds a connection of a client of Serve, or of another side if client is zero. If there is no
// room, an idle connection has to give way.
func (p *Proxy) add(key connKey, client netip.Addr, tcp net.Conn) (*conn, error) {
	c, idle, err := p.tryAdd(key, client, tcp)
	if idle != nil {
		p.warnLimit.Warn(p.Log, "an idle connection is ended, because another one needs its place", "with", idle.connKey.peer)
		idle.fail()
		c, _, err = p.tryAdd(key, client, tcp)
	}
	return c, err
}

// tryAdd does what add does. If there is no room, it returns a connection that may be ended to make
// room, or nil.
func (p *Proxy) tryAdd(key connKey, client netip.Addr, tcp net.Conn) (c, idle *conn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.find(key.peer)
	defer p.removeIfUnused(x)
	now, ofClient := time.Now(), 0
	for _, c := range p.conns {
		if client.IsValid() && c.client == client {
			ofClient++
		}
	}
	switch {
	case p.ended:
		return nil, nil, errors.New("the proxy has ended")
	case ofClient >= MaxConnectionsPerClient:
		idle = p.idlest(now, func(c *conn) bool { return c.client == client })
		return nil, idle, fmt.Errorf("there are %d connections of %v, at most %d", ofClient, client, MaxConnectionsPerClient)
	case x.conns >= MaxConnectionsPerName || len(p.conns) >= MaxConnections*3/4 && x.conns >= MaxConnectionsPerName/8:
		idle = p.idlest(now, func(c *conn) bool { return c.peer == x })
	case len(p.conns) >= MaxConnections:
		idle = p.idlest(now, func(*conn) bool { return true })
	default:
		x.conns++
		c = &conn{proxy: p, peer: x, connKey: key, client: client, tcp: tcp, dataReady: make(chan struct{}, 1), creditReady: make(chan struct{}, 1), done: make(chan struct{})}
		c.carried()
		p.conns[key] = c
		return c, nil, nil
	}
	return nil, idle, fmt.Errorf("there are %d connections with it, at most %d, and %d in all, at most %d", x.conns, MaxConnectionsPerName, len(p.conns), MaxConnections)
}

// idlest returns the connection that may be ended to make room for another one, among those for
// which may returns true: of the name with most of them, the one that has carried no data for
// longest. It returns nil if all have carried data lately. p.mu is held.
func (p *Proxy) idlest(now time.Time, may func(*conn) bool) (idle *conn) {
	var since time.Time
	for _, c := range p.conns {
		last := time.Unix(0, c.lastData.Load())
		if !may(c) || now.Sub(last) < replaceableAfter {
			continue
		}
		if idle == nil || c.peer.conns > idle.peer.conns || c.peer.conns == idle.peer.conns && last.Before(since) {
			idle, since = c, last
		}
	}
	return idle
}

// find returns the peer with a name, and creates it if there is none. removeIfUnused removes a peer
// that has no connections, chunks in flight or pending resets.
func (p *Proxy) find(name frame.GUID) *peer {
	x := p.peers[name]
	if x == nil {
		x = &peer{name: name, room: make(chan struct{})}
		p.peers[name] = x
	}
	return x
}

func (p *Proxy) removeIfUnused(x *peer) {
	if x.conns == 0 && x.chunks == 0 && x.resets == 0 {
		delete(p.peers, x.name)
	}
}

// remove removes a connection.
func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c.connKey] != c {
		return
	}
	delete(p.conns, c.connKey)
	c.peer.conns--
	p.removeIfUnused(c.peer)
}

// reset resets a connection at another side, unless too many resets are pending. It does not wait.
func (p *Proxy) reset(key connKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.find(key.peer)
	if p.resetsLeft == 0 || x.resets >= maxResetsPerName {
		return
	}
	p.resetsLeft--
	x.resets++
	p.resets <- key // the channel has room for all resets
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
		p.removeIfUnused(x)
	}
	err := p.Client.Send(ctx, key.peer, p.Service, m.appendTo(nil), taken)
	if err != nil {
		taken(err)
	}
	return err
}

// sendResets sends the queued resets.
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

// end ends all connections and sends resets.
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
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	for len(p.resets) > 0 {
		if p.sendReset(ctx, <-p.resets) != nil {
			return
		}
	}
}
