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

// Limits of one client's address: requests per second, requests in a burst, and connections. The
// limit of connections of a trusted proxy is higher by the number of viewers that the gateway takes.
const (
	maxRequestRate  = 20
	maxRequestBurst = 40
	maxConnections  = 256
)

// maxWrongPasswords bounds the wrong passwords of one address within wrongPasswordWindow. The
// controller accepts five times as many from all viewers of a gateway, so one address alone does not
// lock out the others.
const (
	maxWrongPasswords   = 20
	wrongPasswordWindow = 10 * time.Second
)

// sendBuffer bounds the bytes in flight to a client.
const sendBuffer = 128 << 10

const (
	// maxAddresses bounds the clients' addresses that are remembered.
	maxAddresses = 1 << 16
	// usageIdleTime is how long an idle address is remembered. Its request limiter is full
	// again by then.
	usageIdleTime = 10 * time.Second
)

// clientLimits counts the requests, viewers, connections and wrong passwords of each client's address,
// and limits them.
type clientLimits struct {
	viewers    int // most viewers of an address
	proxies    clientaddr.Proxies
	proxyExtra int // additional connections of a proxy
	mu         sync.Mutex
	byAddress  sources.Table[netip.Addr, usage]
}

type usage struct {
	requests       *rate.Limiter
	viewers        int
	connections    int
	wrongPasswords int       // within the current window
	windowStart    time.Time // start of the window of wrong passwords
}

func newClientLimits(cfg *Config) *clientLimits {
	return &clientLimits{viewers: cfg.MaxPerAddress, proxies: cfg.Proxies, proxyExtra: cfg.MaxViewers, byAddress: sources.Table[netip.Addr, usage]{
		New: func() *usage { return &usage{requests: rate.NewLimiter(maxRequestRate, maxRequestBurst)} }, Most: maxAddresses, ForgetAfter: usageIdleTime,
		Keep: func(u *usage) bool { return u.viewers > 0 || u.connections > 0 },
	}}
}

// address returns the address to which a request is attributed.
func (l *clientLimits) address(r *http.Request) netip.Addr {
	return clientaddr.Source(l.proxies.Client(r)).Addr()
}

// request reports whether an address may send another request.
func (l *clientLimits) request(a netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.byAddress.Find(a, now)
	return u != nil && u.requests.AllowN(now, 1)
}

// join counts another viewer of an address, or returns an error if the address has too many.
func (l *clientLimits) join(a netip.Addr, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.byAddress.Find(a, now)
	if u == nil || u.viewers >= l.viewers {
		return newRefusal(http.StatusTooManyRequests, "", "your address has %d viewers here already, which is the most", l.viewers)
	}
	u.viewers++
	return nil
}

// leave removes a viewer from the count.
func (l *clientLimits) leave(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byAddress.Known(a).viewers--
}

// checkWrongPasswords returns an error if an address has sent too many wrong passwords. Right
// passwords are not counted, because many viewers behind one address may join at once.
func (l *clientLimits) checkWrongPasswords(a netip.Addr, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.byAddress.Known(a); u != nil && u.wrongPasswords >= maxWrongPasswords && now.Sub(u.windowStart) <= wrongPasswordWindow {
		return newRefusal(http.StatusTooManyRequests, "Authorization", "too many wrong passwords from your address: try again in %v", wrongPasswordWindow)
	}
	return nil
}

// countWrongPassword counts a wrong password.
func (l *clientLimits) countWrongPassword(a netip.Addr, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.byAddress.Find(a, now)
	if u == nil {
		return // there are too many addresses, and its requests are refused
	}
	if now.Sub(u.windowStart) > wrongPasswordWindow {
		u.windowStart, u.wrongPasswords = now, 0
	}
	u.wrongPasswords++
}

// connect counts a connection, and reports whether the address may have it. proxy reports whether the
// address is that of a trusted proxy, which may have more connections.
func (l *clientLimits) connect(a netip.Addr, proxy bool, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := maxConnections
	if proxy {
		most += l.proxyExtra
	}
	u := l.byAddress.Find(a, now)
	if u == nil || u.connections >= most {
		return false
	}
	u.connections++
	return true
}

func (l *clientLimits) disconnect(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byAddress.Known(a).connections--
}

// limitedListener closes connections that exceed the limits of their address.
type limitedListener struct {
	net.Listener
	limits *clientLimits
}

// Accept returns the next connection that is within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(sendBuffer) // so that a slow player's data waits in its queue, where it can be skipped
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		a := clientaddr.Source(from).Addr()
		if l.limits.connect(a, l.limits.proxies.Trust(from), time.Now()) {
			return &countedConn{Conn: c, end: sync.OnceFunc(func() { l.limits.disconnect(a) })}, nil
		}
		_ = c.Close()
	}
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	end func()
}

// Close closes the connection.
func (c *countedConn) Close() error {
	c.end()
	return c.Conn.Close()
}
