package hostagent

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Policy says which connections get further subflows.
type Policy struct {
	// Threshold is how many bytes a connection has carried when it gets its first further
	// subflow; it gets another for as many bytes more.
	Threshold uint64
	// Subflows is how many a connection gets at most, Most how many all together have.
	Subflows, Most int
	// Addresses are those of this host from which they are opened, in turn; none stands for
	// that of the connection itself.
	Addresses []netip.Addr
}

const (
	// establishWithin is how long a connection may take to be established.
	establishWithin = 10 * time.Second
	// answerWithin is how long a subflow may take to come about: the kernel tells when it has,
	// and not when its peer does not answer, or refuses it.
	answerWithin = 10 * time.Second
	// judgeAfter is after how long a subflow is judged, if its connection has carried
	// judgeBytes since: one that has carried less than a part of it, gains nothing.
	judgeAfter = 3 * time.Second
	judgeBytes = 1 << 20
	judgePart  = 20
)

// followed is a connection that the agent knows.
type followed struct {
	Connection
	// first is what Carried was when it was first seen of a kernel that does not count.
	first uint64
	// server says that the other end has opened it: that end opens further subflows, too, since
	// nobody listens at this end's peer.
	server  bool
	since   time.Time // when it was first heard of
	opened  int       // in all
	settled bool      // it gets no more
	own     []*opened
}

// opened is a subflow that the agent has opened.
type opened struct {
	local, remote netip.AddrPort // zero ports until the kernel has told them
	at            time.Time
	// since is what the connection had carried then.
	since  uint64
	judged bool
}

// opening is a subflow that is to be opened.
type opening struct {
	of     *followed
	local  netip.Addr
	id     uint8
	remote netip.AddrPort
}

// wants says which subflow a connection is to get now, if any.
func (p *Policy) wants(f *followed) (opening, bool) {
	due := p.Threshold * uint64(f.opened+1)
	if f.Fallback || f.server || f.settled || f.opened >= p.Subflows || f.Carried-f.first < due {
		return opening{}, false
	}
	o := opening{of: f, local: f.Local.Addr(), id: 1, remote: f.Remote}
	same := slices.DeleteFunc(slices.Clone(p.Addresses), func(a netip.Addr) bool { return a.Is4() != f.Remote.Addr().Is4() })
	if len(same) > 0 {
		i := f.opened % len(same)
		o.local, o.id = same[i], uint8(1+slices.Index(p.Addresses, same[i]))
	}
	return o, true
}

// until is how many bytes connections may carry, each of them, until there is anything to be
// done about one; zero if time alone may bring that about.
func (p *Policy) until(all book) uint64 {
	least := p.Threshold // of one that nobody has told of
	for _, f := range all {
		due := p.Threshold * uint64(f.opened+1)
		switch {
		case f.Token == 0, slices.ContainsFunc(f.own, func(o *opened) bool { return !o.judged }):
			return 0
		case f.Fallback, f.server, f.settled, f.opened >= p.Subflows:
		case f.Carried-f.first >= due:
			return 0
		default:
			least = min(least, due-(f.Carried-f.first))
		}
	}
	return least
}

// due lists the subflows of a connection that are to be judged now.
func (f *followed) due(now time.Time) (all []*opened) {
	for _, o := range f.own {
		if !o.judged && o.local.Port() != 0 && now.Sub(o.at) >= judgeAfter && f.Carried-o.since >= judgeBytes {
			all = append(all, o)
		}
	}
	return all
}

// unanswered takes out the subflows that have not come about in time, and says whether there
// was one: its connection gets no more.
func (f *followed) unanswered(now time.Time) bool {
	before := len(f.own)
	f.own = slices.DeleteFunc(f.own, func(o *opened) bool { return o.local.Port() == 0 && now.Sub(o.at) >= answerWithin })
	f.settled = f.settled || len(f.own) < before
	return len(f.own) < before
}

// gains says whether a subflow that has carried so much has a part in what its connection has.
func (f *followed) gains(o *opened, carried uint64) bool {
	return carried >= (f.Carried-o.since)/judgePart
}

// book is what the agent knows of all connections, by token.
type book map[uint32]*followed

// open is how many subflows the agent has opened that are there.
func (b book) open() (n int) {
	for _, f := range b {
		n += len(f.own)
	}
	return n
}

// maxConnections is how many are known before the kernel is asked for them.
const maxConnections = 1 << 16

// created takes a connection that the kernel tells of.
func (b book) created(e Event, now time.Time) {
	if len(b) < maxConnections {
		b[e.Token] = &followed{server: e.Server, since: now}
	}
}

// see takes what the kernel tells of all connections, and says whether any has carried more
// than a little since. Connections that are not told of are over, but for those that have just
// been created. One of which nobody has told who opened it was opened by the end with the higher
// port.
func (b book) see(all []Connection, now time.Time) (busy bool) {
	there := map[uint32]bool{}
	for _, c := range all {
		there[c.Token] = true
		f := b[c.Token]
		if f == nil {
			f = &followed{since: now, server: c.Local.Port() < c.Remote.Port()}
			b[c.Token] = f
		}
		if f.Token == 0 && !c.Counted {
			f.first = c.Carried
		}
		f.settled = f.settled || c.within()
		busy = busy || c.Carried-f.Carried > little && f.Carried > 0
		f.Connection = c
	}
	for token := range b {
		if !there[token] && now.Sub(b[token].since) >= establishWithin {
			delete(b, token)
		}
	}
	return busy
}

// within says whether a connection does not leave its host: no network has a part in it.
func (c *Connection) within() bool {
	return c.Remote.Addr().IsLoopback() || c.Remote.Addr() == c.Local.Addr()
}

// little is what a connection may carry between two looks that is next to idle, in bytes.
const little = 64 << 10

// told takes what the kernel tells of a subflow that the agent has opened.
func (f *followed) told(e Event) {
	i := slices.IndexFunc(f.own, func(o *opened) bool {
		return o.local.Addr() == e.Local.Addr() && o.remote == e.Remote && (o.local.Port() == 0 || o.local.Port() == e.Local.Port())
	})
	switch {
	case i < 0:
	case e.Kind == SubflowOpened:
		f.own[i].local = e.Local
	case f.own[i].local == e.Local:
		f.own = slices.Delete(f.own, i, i+1)
	}
}

// ordered are the connections that have carried most, first: they are served first where not
// all can be.
func (b book) ordered() []*followed {
	var all []*followed
	for _, f := range b {
		all = append(all, f)
	}
	slices.SortFunc(all, func(x, y *followed) int {
		return cmp.Or(cmp.Compare(y.Carried-y.first, x.Carried-x.first), cmp.Compare(x.Token, y.Token))
	})
	return all
}
