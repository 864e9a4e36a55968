package compute

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// maxFlows limits the flows whose taken results a destination remembers. Beyond it, the least
// recently used flow of the function that has delivered the most flows is removed.
const maxFlows = 1024

// Results checks the results of functions for a destination. It may not be used by two goroutines
// at once. The zero value is ready to use.
type Results struct {
	flows       map[flowID]*flow
	perFunction map[frame.GUID]int // the number of flows of each function
}

// flowID identifies a flow of results.
type flowID struct {
	source, function frame.GUID
	flow             uint64
}

type flow struct {
	custody.Flow
	lastUsed time.Time
}

// Result is a result of a function.
type Result struct {
	// From is the sender of the function's payload.
	From frame.GUID
	// Function is the name of the function.
	Function frame.GUID
	Payload  []byte
	// Empty means that the function was not called because its payload was empty, as is the result.
	Empty bool
	// Again means that the result was taken before: it has come again because its node, or the path
	// to it, has failed. It has to be taken from the host, and ignored.
	Again bool

	id     flowID
	number uint64
}

// Is reports whether a chunk has come from a function.
func Is(x hostapi.Chunk) bool { return x.Service == answerService }

// Open parses and verifies a chunk that has come from a function for the name self. The error wraps
// ErrMessage, ErrSignature or ErrExpired; the chunk then has to be refused. Each result has to be
// passed to Taken, or discarded, before the next is opened.
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
		f.lastUsed, out.Again = time.Now(), true
		return out, nil
	}
	if err := m.checkValid(time.Now(), 2*custody.MaxSkew); err != nil {
		return nil, err
	}
	return out, m.Verify()
}

// Taken records that the destination has taken a result, so that Open detects it if it comes again.
func (r *Results) Taken(x *Result) {
	f := r.flows[x.id]
	if f == nil {
		f = r.begin(x.id)
	}
	f.lastUsed = time.Now()
	f.Take(x.number)
}

// begin adds a flow.
func (r *Results) begin(id flowID) *flow {
	if r.flows == nil {
		r.flows, r.perFunction = map[flowID]*flow{}, map[frame.GUID]int{}
	}
	if len(r.flows) >= maxFlows {
		r.evict()
	}
	f := &flow{}
	r.flows[id] = f
	r.perFunction[id.function]++
	return f
}

// evict removes the least recently used flow of the function that has delivered the most flows.
func (r *Results) evict() {
	var most frame.GUID
	for function, n := range r.perFunction {
		if n > r.perFunction[most] {
			most = function
		}
	}
	var oldest flowID
	var since time.Time
	for id, f := range r.flows {
		if id.function == most && (since.IsZero() || f.lastUsed.Before(since)) {
			oldest, since = id, f.lastUsed
		}
	}
	delete(r.flows, oldest)
	if r.perFunction[most]--; r.perFunction[most] == 0 {
		delete(r.perFunction, most)
	}
}
