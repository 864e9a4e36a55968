package compute

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// maxFlows is of how many flows a destination remembers what it has taken. If there are more, the one goes of which nothing
// has come for longest of those that the function has brought which has brought most.
const maxFlows = 1024

// Results are what has come of orders for a destination. They may not be used by two goroutines at once. The zero
// value is one to which nothing has come.
type Results struct {
	flows map[flowID]*flow
	by    map[frame.GUID]int // how many of them each function has brought
}

// flowID is what the results of one flow have in common.
type flowID struct {
	source, function frame.GUID
	flow             uint64
}

type flow struct {
	custody.Flow
	used time.Time
}

// Result is a chunk of which a function has made something.
type Result struct {
	// From has sent what the function was called on.
	From frame.GUID
	// Function is the one.
	Function frame.GUID
	Payload  []byte
	// Empty is that the function was not called: what was sent is empty, as the result is.
	Empty bool
	// Again is that it was taken before: it has come again because its node, or the way to it, has failed. It is to be
	// taken from the host, and nothing else.
	Again bool

	id     flowID
	number uint64
}

// Is says whether a chunk has come from a function.
func Is(x hostapi.Chunk) bool { return x.Service == answers }

// Open reads a chunk that has come for a name from a function. The error wraps ErrMessage, ErrSignature or
// ErrOver: then it is to be refused. Before the next is opened each is to be given to Taken, or left out.
func (r *Results) Open(x hostapi.Chunk, self frame.GUID) (*Result, error) {
	m, err := parse(x.Payload)
	if err != nil {
		return nil, err
	}
	switch {
	case m.kind != result:
		return nil, fmt.Errorf("kind %d from %v: %w", m.kind, x.From, ErrMessage)
	case m.Function != x.From || m.Destination != self:
		return nil, fmt.Errorf("result of %v for %v, from %v: %w", m.Function, m.Destination, x.From, ErrSignature)
	}
	out := &Result{From: m.Source, Function: m.Function, Payload: m.body, Empty: m.Sum == sha256.Sum256(nil), id: flowID{m.Source, m.Function, m.Flow}, number: m.Number}
	if f := r.flows[out.id]; f != nil && f.State(m.Number) == custody.Taken {
		f.used, out.Again = time.Now(), true
		return out, nil
	}
	if err := m.holds(time.Now(), 2*custody.MaxSkew); err != nil {
		return nil, err
	}
	return out, m.Verify()
}

// Taken notes that the destination has taken a result: one that comes again will say so.
func (r *Results) Taken(x *Result) {
	f := r.flows[x.id]
	if f == nil {
		f = r.begin(x.id)
	}
	f.used = time.Now()
	f.Take(x.number)
}

// begin remembers one more flow.
func (r *Results) begin(id flowID) *flow {
	if r.flows == nil {
		r.flows, r.by = map[flowID]*flow{}, map[frame.GUID]int{}
	}
	if len(r.flows) >= maxFlows {
		r.forget()
	}
	f := &flow{}
	r.flows[id] = f
	r.by[id.function]++
	return f
}

// forget forgets the oldest of the function that has brought most.
func (r *Results) forget() {
	var most frame.GUID
	for function, n := range r.by {
		if n > r.by[most] {
			most = function
		}
	}
	var oldest flowID
	var since time.Time
	for id, f := range r.flows {
		if id.function == most && (since.IsZero() || f.used.Before(since)) {
			oldest, since = id, f.used
		}
	}
	delete(r.flows, oldest)
	if r.by[most]--; r.by[most] == 0 {
		delete(r.by, most)
	}
}
