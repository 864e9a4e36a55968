package hostagent

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Policy determines which connections get further subflows.
type Policy struct {
	// Threshold is the number of bytes that a connection has to carry before it gets its first
	// further subflow. It gets another for each Threshold bytes more.
	Threshold uint64
	// Subflows bounds the further subflows of one connection. Most bounds those of all connections
	// together.
	Subflows, Most int
	// Addresses lists the addresses of this host from which subflows are opened, in turn. If it is
	// empty, subflows are opened from the connection's own local address.
	Addresses []netip.Addr
}

const (
	// establishTimeout is how long a connection that was reported as created may take to be
	// established.
	establishTimeout = 10 * time.Second
	// answerTimeout is how long a subflow may take to be established. The kernel reports when it is
	// established, but not that its peer does not answer or refuses it.
	answerTimeout = 10 * time.Second
	// evaluateAfter is the age at which a subflow is evaluated, if its connection has carried
	// evaluateBytes since the subflow was opened. A subflow contributes nothing if it has carried
	// less than the connection's bytes since then, divided by minPart.
	evaluateAfter = 3 * time.Second
	evaluateBytes = 1 << 20
	minPart       = 20
)

// trackedConn is a connection that the agent tracks.
type trackedConn struct {
	Connection
	// first is the value of Carried when the connection was first seen, for a kernel that
	// does not count bytes.
	first uint64
	// server reports whether the other end has opened the connection. Only that end can then open
	// further subflows, because it does not listen at its own port.
	server   bool
	since    time.Time // when the agent first learned about it
	opened   int       // number of subflows opened so far
	finished bool      // whether it gets no more subflows
	subflows []*ownSubflow
}

// ownSubflow is a subflow that the agent has opened.
type ownSubflow struct {
	local, remote netip.AddrPort // the local port is zero until the kernel has reported it
	at            time.Time
	// since is the number of bytes that the connection had carried when the subflow was opened.
	since     uint64
	evaluated bool
}

// openRequest describes a subflow that has to be opened.
type openRequest struct {
	of     *trackedConn
	local  netip.Addr
	id     uint8
	remote netip.AddrPort
}

// nextSubflow returns the subflow that should be opened for a connection now, and reports whether
// there is one.
func (p *Policy) nextSubflow(f *trackedConn) (openRequest, bool) {
	due := p.Threshold * uint64(f.opened+1)
	if f.Fallback || f.server || f.finished || f.opened >= p.Subflows || f.Carried-f.first < due {
		return openRequest{}, false
	}
	o := openRequest{of: f, local: f.Local.Addr(), id: 1, remote: f.Remote}
	same := slices.DeleteFunc(slices.Clone(p.Addresses), func(a netip.Addr) bool { return a.Is4() != f.Remote.Addr().Is4() })
	if len(same) > 0 {
		i := f.opened % len(same)
		o.local, o.id = same[i], uint8(1+slices.Index(p.Addresses, same[i]))
	}
	return o, true
}

// bytesUntilAction returns how many bytes any connection may carry before the agent has to act on
// it. It returns zero if the passing of time alone may require that.
func (p *Policy) bytesUntilAction(all connections) uint64 {
	least := p.Threshold // the limit for a connection that is not known yet
	for _, f := range all {
		due := p.Threshold * uint64(f.opened+1)
		switch {
		case f.Token == 0, slices.ContainsFunc(f.subflows, func(o *ownSubflow) bool { return !o.evaluated }):
			return 0
		case f.Fallback, f.server, f.finished, f.opened >= p.Subflows:
		case f.Carried-f.first >= due:
			return 0
		default:
			least = min(least, due-(f.Carried-f.first))
		}
	}
	return least
}

// toEvaluate returns the subflows of a connection that have to be evaluated now.
func (f *trackedConn) toEvaluate(now time.Time) (all []*ownSubflow) {
	for _, o := range f.subflows {
		if !o.evaluated && o.local.Port() != 0 && now.Sub(o.at) >= evaluateAfter && f.Carried-o.since >= evaluateBytes {
			all = append(all, o)
		}
	}
	return all
}

// dropUnanswered removes the subflows that were not established in time, and reports whether there
// were any. If there were, the connection gets no more subflows.
func (f *trackedConn) dropUnanswered(now time.Time) bool {
	before := len(f.subflows)
	f.subflows = slices.DeleteFunc(f.subflows, func(o *ownSubflow) bool { return o.local.Port() == 0 && now.Sub(o.at) >= answerTimeout })
	f.finished = f.finished || len(f.subflows) < before
	return len(f.subflows) < before
}

// isUseful reports whether a subflow that has carried the given bytes contributes to its
// connection.
func (f *trackedConn) isUseful(o *ownSubflow, carried uint64) bool {
	return carried >= (f.Carried-o.since)/minPart
}

// connections holds the connections that the agent tracks, by token.
type connections map[uint32]*trackedConn

// openSubflows returns the number of existing subflows that the agent has opened.
func (b connections) openSubflows() (n int) {
	for _, f := range b {
		n += len(f.subflows)
	}
	return n
}

// maxConnections bounds the connections that are added by events, before the agent has asked the
// kernel for all connections.
const maxConnections = 1 << 16

// add adds a connection that the kernel has reported as created.
func (b connections) add(e Event, now time.Time) {
	if len(b) < maxConnections {
		b[e.Token] = &trackedConn{server: e.Server, since: now}
	}
}

// update updates the connections with the kernel's reports, and reports whether any has carried
// more than idleBytes since the last update. Connections without a report are over, except those
// that have just been created. If it is not known which end opened a connection, the end with the
// higher port counts as the opener.
func (b connections) update(all []Connection, now time.Time) (busy bool) {
	there := map[uint32]bool{}
	for _, c := range all {
		there[c.Token] = true
		f := b[c.Token]
		if f == nil {
			f = &trackedConn{since: now, server: c.Local.Port() < c.Remote.Port()}
			b[c.Token] = f
		}
		if f.Token == 0 && !c.Counted {
			f.first = c.Carried
		}
		f.finished = f.finished || c.isLocal()
		busy = busy || c.Carried-f.Carried > idleBytes && f.Carried > 0
		f.Connection = c
	}
	for token := range b {
		if !there[token] && now.Sub(b[token].since) >= establishTimeout {
			delete(b, token)
		}
	}
	return busy
}

// isLocal reports whether both ends of a connection are on this host, so that no network carries
// it.
func (c *Connection) isLocal() bool {
	return c.Remote.Addr().IsLoopback() || c.Remote.Addr() == c.Local.Addr()
}

// idleBytes is the number of bytes that a connection may carry between two polls and still count as
// idle.
const idleBytes = 64 << 10

// subflowChanged handles an event about a subflow that the agent has opened.
func (f *trackedConn) subflowChanged(e Event) {
	i := slices.IndexFunc(f.subflows, func(o *ownSubflow) bool {
		return o.local.Addr() == e.Local.Addr() && o.remote == e.Remote && (o.local.Port() == 0 || o.local.Port() == e.Local.Port())
	})
	switch {
	case i < 0:
	case e.Kind == SubflowOpened:
		f.subflows[i].local = e.Local
	case f.subflows[i].local == e.Local:
		f.subflows = slices.Delete(f.subflows, i, i+1)
	}
}

// byCarried returns the connections, ordered by the bytes that they have carried, the most first.
// If not all connections can get a subflow, those that have carried most get one.
func (b connections) byCarried() []*trackedConn {
	var all []*trackedConn
	for _, f := range b {
		all = append(all, f)
	}
	slices.SortFunc(all, func(x, y *trackedConn) int {
		return cmp.Or(cmp.Compare(y.Carried-y.first, x.Carried-x.first), cmp.Compare(x.Token, y.Token))
	})
	return all
}
