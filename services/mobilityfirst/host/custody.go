package host

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/sources"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// maxFlows limits the flows whose taken chunks the host remembers. Storage nodes have delivered
	// these chunks. When the limit is reached, the host forgets flows of the node that has delivered
	// the most flows, the least recently used first.
	maxFlows = 4096
	// forgeriesPerPlace and forgeriesTotal limit the chunks with false signatures per second, from
	// one place and in total. When a limit is exceeded, the host refuses the place's chunks for a
	// while without a check. A storage node verifies what it stores, so it delivers no such chunk
	// unless it is faulty or hostile.
	forgeriesPerPlace, forgeriesTotal = 50, 500
)

// errForgeries is the error for chunks that are refused without a check.
var errForgeries = fmt.Errorf("too many of its chunks were not signed by their senders: %w", custody.ErrSignature)

// storageFor returns the storage node by which a chunk is sent; ok is false if it is sent directly.
// All chunks to one name go by the same node.
func (h *Host) storageFor(to frame.GUID, service frame.Service) (storage frame.GUID, ok bool) {
	if service&frame.DelayTolerant == 0 || service&frame.Custody != 0 || len(h.Storage) == 0 || slices.Contains(h.Storage, to) {
		return storage, false
	}
	return h.Storage[binary.BigEndian.Uint64(to[:])%uint64(len(h.Storage))], true // a name is a hash, so the nodes share the names evenly
}

// pushCustody queues a chunk for a storage node. done is called when the node has it.
func (e *Endpoint) pushCustody(storage, to frame.GUID, service frame.Service, payload []byte, done func(error)) (room <-chan struct{}, err error) {
	if len(payload) > custody.MaxPayload {
		return nil, fmt.Errorf("chunk of %d bytes that may be kept, at most %d: %w", len(payload), custody.MaxPayload, ErrTooLarge)
	}
	h := e.host
	e.sealMu.Lock() // no other chunk gets its number until it is queued
	defer e.sealMu.Unlock()
	h.mu.Lock()
	room, err = e.hasRoom(storage, custody.Overhead+len(payload)) // before signing, which is expensive
	last := e.lastCustody(to)
	h.mu.Unlock()
	if err != nil {
		return room, err
	}
	last.Number++
	c := custody.Chunk{ID: last, Service: service, Until: time.Now().Add(h.KeptFor).Truncate(time.Millisecond), Payload: payload}
	c.Sign(e.key)
	sealed := c.AppendTo(make([]byte, 0, custody.Overhead+len(payload)))
	h.mu.Lock()
	defer h.mu.Unlock()
	if room, err = e.pushLocked(storage, frame.Custody, sealed, done); err == nil {
		e.flows[to] = last
	}
	return room, err
}

// lastCustody returns the ID of the last chunk to a name that was sent by way of a storage node. If
// there is none, it returns an ID in a new flow with the number zero. The host is locked.
func (e *Endpoint) lastCustody(to frame.GUID) custody.ID {
	if last, ok := e.flows[to]; ok {
		return last
	}
	for other := range e.flows { // keep as many flows as a name may have destinations
		if len(e.flows) < maxOutgoingPerName {
			break
		}
		delete(e.flows, other)
	}
	return custody.ID{Source: e.Name, Destination: to, Flow: rand.Uint64()}
}

// custodyFlow is a flow whose chunks storage nodes have delivered.
type custodyFlow struct {
	custody.Flow
	node     frame.GUID // the node that has delivered it first
	lastUsed time.Time
	// sessions holds, for each chunk that the application has received and not taken over, the
	// session in which it came.
	sessions map[uint64]*session
}

// custodyFlows holds the flows whose chunks storage nodes have delivered. The host is locked when
// it is used.
type custodyFlows struct {
	flows   map[custody.ID]*custodyFlow // by the ID without a number
	perNode map[frame.GUID]int          // the number of flows of each node
}

func (b *custodyFlows) init() {
	b.flows, b.perNode = map[custody.ID]*custodyFlow{}, map[frame.GUID]int{}
}

// unseal verifies and unpacks a chunk that a storage node has delivered, and reports whether the
// application receives r. The application does not receive a chunk that was delivered before or is
// not valid. A chunk for another name is meant for a storage node, which receives it packed. The
// host is not locked.
func (e *Endpoint) unseal(r *Received, now time.Time) (ok bool) {
	c, err := custody.Parse(r.Payload)
	if err == nil && c.Destination != e.Name {
		return true
	}
	h := e.host
	h.mu.Lock()
	switch {
	case err != nil || h.custodyFlows.state(c.ID) != custody.New:
	case !h.forgeries.allow(r.delivery.account.at, now):
		err = errForgeries
	default:
		h.mu.Unlock()
		if err = c.CheckValid(now); err == nil {
			err = c.Verify()
		}
		h.mu.Lock()
	}
	if _, ok = e.untaken[r]; ok { // otherwise the endpoint was closed meanwhile
		ok = h.acceptCustody(r, c, err, now)
	}
	h.mu.Unlock()
	if err != nil {
		h.warnLimit.Warn(h.Log, "a chunk from a storage node is not accepted", "node", r.From, "error", err)
	}
	return ok
}

// acceptCustody delivers a verified chunk to its receiver once, and reports whether the application
// receives it. A chunk with a false signature is discarded. An expired chunk stays with the node,
// which drops it when it has expired by the node's clock. The host is locked.
func (h *Host) acceptCustody(r *Received, c *custody.Chunk, err error, now time.Time) bool {
	switch {
	case errors.Is(err, errForgeries), errors.Is(err, custody.ErrExpired):
		r.refuse()
		return false
	case err != nil:
		h.forgeries.charge(r.delivery.account.at, now)
		r.take()
		return false
	}
	f := h.custodyFlows.flow(c.ID, r.From)
	f.lastUsed = now
	switch f.State(c.Number) {
	case custody.Taken:
		r.take()
		return false
	case custody.Delivered:
		if f.sessions[c.Number] == r.session {
			r.take() // acknowledgements are in order, so the node learns of this only after the first copy has been taken
		} else {
			r.refuse()
		}
		return false
	}
	f.Deliver(c.Number)
	f.sessions[c.Number] = r.session
	r.kept = c.ID
	r.From, r.Service, r.Payload = c.Source, c.Service, c.Payload
	return true
}

// state returns the state of a chunk.
func (b *custodyFlows) state(id custody.ID) custody.State {
	if f := b.flows[id.InFlow()]; f != nil {
		return f.State(id.Number)
	}
	return custody.New
}

// done records that a delivered chunk was taken over, or that it will not be.
func (b *custodyFlows) done(id custody.ID, taken bool) {
	f := b.flows[id.InFlow()]
	if f == nil {
		return
	}
	if delete(f.sessions, id.Number); taken {
		f.Take(id.Number)
	} else {
		f.Return(id.Number)
	}
}

// flow returns the flow of a chunk, and creates it if there is none, for the node that has
// delivered it.
func (b *custodyFlows) flow(id custody.ID, node frame.GUID) *custodyFlow {
	if f := b.flows[id.InFlow()]; f != nil {
		return f
	}
	if len(b.flows) >= maxFlows {
		b.evict()
	}
	f := &custodyFlow{node: node, sessions: map[uint64]*session{}}
	b.flows[id.InFlow()] = f
	b.perNode[node]++
	return f
}

// evict removes a quarter of the flows of the node that has delivered the most, the least recently
// used first. It keeps flows with chunks that an application still has, whose number is limited
// with that of the chunks.
func (b *custodyFlows) evict() {
	var most frame.GUID
	for by, n := range b.perNode {
		if n > b.perNode[most] {
			most = by
		}
	}
	var own []custody.ID
	for id, f := range b.flows {
		if f.node == most && f.Idle() {
			own = append(own, id)
		}
	}
	slices.SortFunc(own, func(x, y custody.ID) int { return b.flows[x].lastUsed.Compare(b.flows[y].lastUsed) })
	for _, id := range own[:(len(own)+3)/4] {
		b.forget(id)
	}
}

func (b *custodyFlows) forget(id custody.ID) {
	by := b.flows[id].node
	if b.perNode[by]--; b.perNode[by] == 0 {
		delete(b.perNode, by)
	}
	delete(b.flows, id)
}

// sweep removes the flows whose chunks have all expired.
func (b *custodyFlows) sweep(now time.Time) {
	for id, f := range b.flows {
		if f.Idle() && now.Sub(f.lastUsed) > custody.MaxKept+2*custody.MaxSkew {
			b.forget(id)
		}
	}
}

// forgeryLimits counts the chunks with false signatures by the place that they have come from.
type forgeryLimits struct {
	byPlace       sources.Table[place, rate.Limiter]
	overflow, all *rate.Limiter
}

func (l *forgeryLimits) init() {
	one := func() *rate.Limiter { return rate.NewLimiter(forgeriesPerPlace, forgeriesPerPlace) }
	l.byPlace = sources.Table[place, rate.Limiter]{New: one, Most: maxSources, ForgetAfter: forgetSource}
	l.overflow, l.all = one(), rate.NewLimiter(forgeriesTotal, forgeriesTotal)
}

// charge counts a chunk with a false signature from a place.
func (l *forgeryLimits) charge(at place, now time.Time) {
	cmp.Or(l.byPlace.Find(at.source(), now), l.overflow).AllowN(now, 1)
	l.all.AllowN(now, 1)
}

// allow reports whether chunks from a place may be checked: unless too many chunks with false
// signatures have come from there lately.
func (l *forgeryLimits) allow(at place, now time.Time) bool {
	if r := l.byPlace.Known(at.source()); r != nil {
		return r.TokensAt(now) >= 1 && l.all.TokensAt(now) >= 1
	}
	return l.byPlace.Len() < maxSources || l.overflow.TokensAt(now) >= 1
}
