package gnrs

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Others reaches the name services of other domains, which share the names (package replicas). The
// methods may be called concurrently.
type Others interface {
	// Keeps reports whether this server is one of those that have to keep a name.
	Keeps(frame.GUID) bool
	// Count returns the number of other domains.
	Count() int
	// IsPeer reports whether an address belongs to one of the other domains.
	IsPeer(netip.Addr) bool
	// Lookup looks a name up at other domains, and returns until when the answer may be cached.
	Lookup(context.Context, frame.GUID) (*record.Record, time.Time, error)
	// Written reports a changed record in the store. brought is set if another domain has sent the
	// record, so that the others need not be told. Written must not block.
	Written(name frame.GUID, brought bool)
	// Changed registers f, which is called when a name that was looked up has changed.
	Changed(f func(frame.GUID))
}

const (
	// These constants limit the forwarded lookups at one time: the names, the lookups of one name,
	// and the lookups from one source. Sources that have not proven their address leave half of the
	// first two to others.
	maxForwardedNames, maxQuestionsPerName, maxQuestionsPerSource = 4096, 256, 1024
	// forwardTimeout is how long other domains may take. It is shorter than the time after which
	// the client gives up.
	forwardTimeout = maxAttempts * attemptTimeout * 7 / 10
	// optionNo is the value with which the original's hosts ask a server not to ask others, in that
	// release's encoding of a number.
	optionNo = "\x00\x00"
)

// forwarder holds the lookups that wait for answers of other domains.
type forwarder struct {
	*Server
	tasks *tasks.Group

	mu        sync.Mutex
	byName    map[frame.GUID]*forwardedName
	perSource map[netip.Addr]int
}

// forwardedName is a name that is being looked up at other domains.
type forwardedName struct {
	questions []question
	// changed means that the name has changed meanwhile: the answer may be older.
	changed bool
}

// question is a lookup by a client.
type question struct {
	name      frame.GUID
	from      source
	to        netip.AddrPort
	proof     bool
	localOnly bool // other domains must not be asked
	a         *gnrswire.Message
}

func newForwarder(s *Server) *forwarder {
	return &forwarder{Server: s, tasks: tasks.New(), byName: map[frame.GUID]*forwardedName{}, perSource: map[netip.Addr]int{}}
}

// mustForward reports whether other domains have to be asked for a name: the client allows it, and
// this server does not have to know the name.
func (s *Server) mustForward(q question, found bool) bool {
	return s.Others != nil && !q.localOnly && (!found || !s.Others.Keeps(q.name))
}

// isLocalOnly reports whether a message asks the server not to ask or tell other domains.
func isLocalOnly(m *gnrswire.Message) bool {
	return slices.ContainsFunc(m.Options, func(o gnrswire.Option) bool {
		return o.Kind == gnrswire.Recursive && len(o.Value) > 0 && strings.Trim(string(o.Value), "\x00") == ""
	})
}

// add forwards a lookup, and reports whether there was room for it.
func (q *forwarder) add(x question) bool {
	x.from.addr = clientaddr.Source(x.from.addr).Addr()
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.byName[x.name]
	if n == nil && len(q.byName) >= room(maxForwardedNames, x.from) || n != nil && len(n.questions) >= room(maxQuestionsPerName, x.from) || q.perSource[x.from.addr] >= maxQuestionsPerSource {
		return false
	}
	if n == nil {
		if !q.tasks.Start(func(ctx context.Context) { q.forward(ctx, x.name) }) {
			return false
		}
		n = &forwardedName{}
		q.byName[x.name] = n
	}
	n.questions = append(n.questions, x)
	q.perSource[x.from.addr]++
	return true
}

// nameChanged records that a name has changed.
func (q *forwarder) nameChanged(name frame.GUID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.byName[name]; n != nil {
		n.changed = true
	}
}

// finish removes a forwarded name and returns it.
func (q *forwarder) finish(name frame.GUID) *forwardedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.byName[name]
	delete(q.byName, name)
	for _, x := range n.questions {
		if q.perSource[x.from.addr]--; q.perSource[x.from.addr] == 0 {
			delete(q.perSource, x.from.addr)
		}
	}
	return n
}

// forward looks a name up at other domains, and answers all waiting clients with the newer of the
// record found there and this server's own.
func (q *forwarder) forward(ctx context.Context, name frame.GUID) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	r, until, err := q.Others.Lookup(ctx, name)
	now := time.Now()
	own, _ := q.stored(name, now) // a record that cannot be read counts as missing
	code := OK
	switch refused := (*RefusedError)(nil); {
	case err == nil && (own == nil || own.Number <= r.Number):
		if q.Others.Keeps(name) {
			q.repair(r)
		}
	case own != nil:
		r, until = own, now.Add(unwatchedLifetime)
	case errors.As(err, &refused) && refused.Code == NotFound:
		code = NotFound
	default:
		code = Unreachable
	}
	n := q.finish(name)
	if soon := now.Add(unwatchedLifetime); n.changed && until.After(soon) {
		until = soon
	}
	for _, x := range n.questions {
		if code == OK {
			fill(x.a, r, x.proof, until.Sub(now))
		}
		q.setCode(x.a, code)
		q.sendLater(q.delayed, x.to, x.a)
	}
}

// repair stores a record that this server should have had.
func (q *forwarder) repair(r *record.Record) {
	copied, err := record.Parse(r.AppendTo(nil)) // the record's memory is shared with others
	if err == nil {
		_ = q.Store.Start(copied, func(bool, error) {}) // if it fails, the next lookup tries again
	}
}
