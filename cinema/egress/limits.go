package egress

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/internal/sources"
)

// What one client's address may do: so many requests each second, so many at once, and so many
// connections. A trusted proxy may have as many connections as there may be viewers, and these.
const (
	perSecond      = 20
	atOnce         = 40
	maxConnections = 256
)

// An address may be wrong about so many passwords in wrongFor: a fifth of what the controller lets
// all viewers of a gateway be, so that one address does not keep the others out.
const (
	maxWrong = 20
	wrongFor = 10 * time.Second
)

// sendBuffer is how much of what is sent to a client may be on its way, in bytes.
const sendBuffer = 128 << 10

const (
	// maxAddresses bounds the addresses that are remembered.
	maxAddresses = 1 << 16
	// idle is after how long nothing needs to be remembered of an address: its requests are
	// all forgiven by then.
	idle = 10 * time.Second
)

// limits counts what each client's address does.
type limits struct {
	viewers int // that an address may have
	proxies clientaddr.Proxies
	behind  int // connections that a proxy may have more than an address
	mu      sync.Mutex
	of      sources.Table[netip.Addr, usage]
}

type usage struct {
	requests    *rate.Limiter
	viewers     int
	connections int
	wrongs      int       // passwords
	since       time.Time // when they were begun to be counted
}

func newLimits(cfg *Config) *limits {
	return &limits{viewers: cfg.MaxPerAddress, proxies: cfg.Proxies, behind: cfg.MaxViewers, of: sources.Table[netip.Addr, usage]{
		New: func() *usage { return &usage{requests: rate.NewLimiter(perSecond, atOnce)} }, Most: maxAddresses, ForgetAfter: idle,
		Keep: func(u *usage) bool { return u.viewers > 0 || u.connections > 0 },
	}}
}

// address is as whose a request is counted.
func (l *limits) address(r *http.Request) netip.Addr {
	return clientaddr.Source(l.proxies.Client(r)).Addr()
}

// request says whether an address may ask once more.
func (l *limits) request(a netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.of.Find(a, now)
	return u != nil && u.requests.AllowN(now, 1)
}

// join says whether an address may have one viewer more, and counts it.
func (l *limits) join(a netip.Addr, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.of.Find(a, now)
	if u == nil || u.viewers >= l.viewers {
		return refused(http.StatusTooManyRequests, "", "your address has %d viewers here already, which is the most", l.viewers)
	}
	u.viewers++
	return nil
}

// leave counts one viewer less.
func (l *limits) leave(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of.Known(a).viewers--
}

// mayGuess refuses a password of an address that has been wrong too often of late. What is right is not
// counted: many who come by one address may join at once.
func (l *limits) mayGuess(a netip.Addr, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.of.Known(a); u != nil && u.wrongs >= maxWrong && now.Sub(u.since) <= wrongFor {
		return refused(http.StatusTooManyRequests, "Authorization", "too many wrong passwords from your address: try again in %v", wrongFor)
	}
	return nil
}

// wrong counts a wrong password.
func (l *limits) wrong(a netip.Addr, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.of.Find(a, now)
	if u == nil {
		return // too many addresses: its requests are refused
	}
	if now.Sub(u.since) > wrongFor {
		u.since, u.wrongs = now, 0
	}
	u.wrongs++
}

// connect counts a connection; it says whether the address may have it. More may come by a proxy.
func (l *limits) connect(a netip.Addr, proxy bool, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := maxConnections
	if proxy {
		most += l.behind
	}
	u := l.of.Find(a, now)
	if u == nil || u.connections >= most {
		return false
	}
	u.connections++
	return true
}

func (l *limits) disconnect(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of.Known(a).connections--
}

// listener closes connections that are more than an address may have.
type listener struct {
	net.Listener
	limits *limits
}

// Accept returns the next connection that is within the limits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, is := c.(*net.TCPConn); is {
			_ = tcp.SetWriteBuffer(sendBuffer) // what a slow player misses is not on its way already
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		a := clientaddr.Source(from).Addr()
		if l.limits.connect(a, l.limits.proxies.Trust(from), time.Now()) {
			return &counted{Conn: c, end: sync.OnceFunc(func() { l.limits.disconnect(a) })}, nil
		}
		_ = c.Close()
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	end func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.end()
	return c.Conn.Close()
}
