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

// Others are the name services of other domains, which know names together (package replicas). The methods may be called
// concurrently.
type Others interface {
	// Keeps says whether this server is one of those that are to know a name.
	Keeps(frame.GUID) bool
	// Is says whether an address is that of one of the others.
	Is(netip.Addr) bool
	// Lookup asks others where a name is, and says until when that may be kept.
	Lookup(context.Context, frame.GUID) (*record.Record, time.Time, error)
	// Written tells that the store has something new of a name, and whether another has brought it, so that the others need not
	// be told. It does not block.
	Written(name frame.GUID, brought bool)
	// Changed has f called when a name that was asked for has changed.
	Changed(f func(frame.GUID))
}

const (
	// What is asked of others at one time: names in all, questions for one name, and questions from one address.
	maxNames, maxAskers, maxFrom = 4096, 256, 1024
	// othersWithin is how long others may take: who asks gives up when he has asked twice.
	othersWithin = tries * tryFor * 7 / 10
	// optionNo is as the original release has a number: so its hosts say that nobody else is to be asked.
	optionNo = "\x00\x00"
)

// questions are those that wait for others' answers.
type questions struct {
	*Server
	tasks *tasks.Group

	mu   sync.Mutex
	of   map[frame.GUID]*asked
	from map[netip.Addr]int
}

// asked is a name that others are asked for.
type asked struct {
	by []question
	// changed says that the name has changed meanwhile: what is answered may be from before.
	changed bool
}

// question is where a name is.
type question struct {
	name  frame.GUID
	from  netip.Addr
	to    netip.AddrPort
	proof bool
	alone bool // no others are to be asked
	a     *gnrswire.Message
}

func newQuestions(s *Server) *questions {
	return &questions{Server: s, tasks: tasks.New(), of: map[frame.GUID]*asked{}, from: map[netip.Addr]int{}}
}

// asksOthers says whether others are to be asked about a name: who asks wants it, and this server is not one of those that
// have to know.
func (s *Server) asksOthers(q question, found bool) bool {
	return s.Others != nil && !q.alone && (!found || !s.Others.Keeps(q.name))
}

// isAlone says whether a message wants no others to be asked or told.
func isAlone(m *gnrswire.Message) bool {
	return slices.ContainsFunc(m.Options, func(o gnrswire.Option) bool {
		return o.Kind == gnrswire.Recursive && len(o.Value) > 0 && strings.Trim(string(o.Value), "\x00") == ""
	})
}

// add has others asked, and says whether there was room for that.
func (q *questions) add(x question) bool {
	x.from = clientaddr.Source(x.from).Addr()
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.of[x.name]
	if n == nil && len(q.of) >= maxNames || n != nil && len(n.by) >= maxAskers || q.from[x.from] >= maxFrom {
		return false
	}
	if n == nil {
		if !q.tasks.Start(func(ctx context.Context) { q.ask(ctx, x.name) }) {
			return false
		}
		n = &asked{}
		q.of[x.name] = n
	}
	n.by = append(n.by, x)
	q.from[x.from]++
	return true
}

// change notes that a name has changed.
func (q *questions) change(name frame.GUID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.of[name]; n != nil {
		n.changed = true
	}
}

// take ends that others are asked for a name.
func (q *questions) take(name frame.GUID) *asked {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.of[name]
	delete(q.of, name)
	for _, x := range n.by {
		if q.from[x.from]--; q.from[x.from] == 0 {
			delete(q.from, x.from)
		}
	}
	return n
}

// ask asks others where a name is, and answers all who wait for it: what is newest, of what others know and this server.
func (q *questions) ask(ctx context.Context, name frame.GUID) {
	ctx, cancel := context.WithTimeout(ctx, othersWithin)
	defer cancel()
	r, until, err := q.Others.Lookup(ctx, name)
	now := time.Now()
	own, _ := q.stored(name, now) // who can't read it has nothing
	code := OK
	switch refused := (*RefusedError)(nil); {
	case err == nil && (own == nil || own.Number <= r.Number):
		if q.Others.Keeps(name) {
			q.repair(r)
		}
	case own != nil:
		r, until = own, now.Add(untoldFor)
	case errors.As(err, &refused) && refused.Code == NotFound:
		code = NotFound
	default:
		code = Unreachable
	}
	n := q.take(name)
	if soon := now.Add(untoldFor); n.changed && until.After(soon) {
		until = soon
	}
	for _, x := range n.by {
		if code == OK {
			put(x.a, r, x.proof, until.Sub(now))
		}
		q.conclude(x.a, code)
		q.later(q.waited, x.to, x.a)
	}
}

// repair has a record kept that this server was to know, and did not.
func (q *questions) repair(r *record.Record) {
	copied, err := record.Parse(r.AppendTo(nil)) // others have this one's memory
	if err == nil {
		_ = q.Store.Start(copied, func(bool, error) {}) // or the next time
	}
}
