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
	// maxFlows is of how many flows that come by storage nodes is remembered what was taken. When there are
	// more, those go that came longest ago by the node that has brought most of them.
	maxFlows = 4096
	// falseEach is how many chunks a second from one place, and falseAll from all, are looked at after one that its
	// sender had not signed has come from there. What comes beyond that is refused for a while: a node that looks at
	// what it keeps brings none.
	falseEach, falseAll = 50, 500
)

// errFalse is for chunks that are not looked at.
var errFalse = fmt.Errorf("too many of its chunks were not signed by their senders: %w", custody.ErrSignature)

// kept says whether a chunk goes by a storage node, and by which: chunks to one name all by the same.
func (h *Host) kept(to frame.GUID, service frame.Service) (storage frame.GUID, is bool) {
	if service&frame.DelayTolerant == 0 || service&frame.Custody != 0 || len(h.Storage) == 0 || slices.Contains(h.Storage, to) {
		return storage, false
	}
	return h.Storage[binary.BigEndian.Uint64(to[:])%uint64(len(h.Storage))], true // a name is a hash
}

// pushKept queues a chunk for a storage node. When it is done, that has it.
func (e *Endpoint) pushKept(storage, to frame.GUID, service frame.Service, payload []byte, done func(error)) (room <-chan struct{}, err error) {
	if len(payload) > custody.MaxPayload {
		return nil, fmt.Errorf("chunk of %d bytes that may be kept, at most %d: %w", len(payload), custody.MaxPayload, ErrTooLarge)
	}
	h := e.host
	e.sealing.Lock() // its number is nobody else's until it is queued
	defer e.sealing.Unlock()
	h.mu.Lock()
	room, err = e.hasRoom(storage, custody.Overhead+len(payload)) // before it costs something
	last := e.lastKept(to)
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

// lastKept is the last chunk to a name that was to be kept, of a new flow if there was none. The host is locked.
func (e *Endpoint) lastKept(to frame.GUID) custody.ID {
	if last, is := e.flows[to]; is {
		return last
	}
	for other := range e.flows { // as many as there are destinations
		if len(e.flows) < maxOutgoingEach {
			break
		}
		delete(e.flows, other)
	}
	return custody.ID{Source: e.Name, Destination: to, Flow: rand.Uint64()}
}

// broughtFlow is a flow that has come by storage nodes.
type broughtFlow struct {
	custody.Flow
	by   frame.GUID // the node that has brought it first
	used time.Time
	// in is the session in which each chunk has come that the application has, and has not taken.
	in map[uint64]*session
}

// brought are the flows that have come by storage nodes. The host is locked when it is used.
type brought struct {
	flows map[custody.ID]*broughtFlow // by what their chunks have in common
	by    map[frame.GUID]int          // how many of them each node has brought
}

func (b *brought) init() {
	b.flows, b.by = map[custody.ID]*broughtFlow{}, map[frame.GUID]int{}
}

// unseal takes a chunk that a storage node has brought out of what it came in, if its receiver has not had it;
// otherwise the application gets nothing. One for another name is for a storage node, which gets it as it is. The
// host is not locked.
func (e *Endpoint) unseal(r *Received, now time.Time) (is bool) {
	c, err := custody.Parse(r.Payload)
	if err == nil && c.Destination != e.Name {
		return true
	}
	h := e.host
	h.mu.Lock()
	switch {
	case err != nil || h.brought.state(c.ID) != custody.New:
	case !h.liars.believed(r.delivery.account.at, now):
		err = errFalse
	default:
		h.mu.Unlock()
		if err = c.CheckValid(now); err == nil {
			err = c.Verify()
		}
		h.mu.Lock()
	}
	if _, is = e.handed[r]; is { // or it was closed meanwhile
		is = h.bring(r, c, err, now)
	}
	h.mu.Unlock()
	if err != nil {
		h.strange.Warn(h.Log, "a storage node has brought a chunk that is not taken", "node", r.From, "error", err)
	}
	return is
}

// bring gives a chunk that was looked at to its receiver, once. What its sender has not signed is nobody's. What does
// not hold stays with the node, which drops it if that is so by its clock, too. The host is locked.
func (h *Host) bring(r *Received, c *custody.Chunk, err error, now time.Time) bool {
	switch {
	case errors.Is(err, errFalse), errors.Is(err, custody.ErrExpired):
		r.refuse()
		return false
	case err != nil:
		h.liars.charge(r.delivery.account.at, now)
		r.take()
		return false
	}
	f := h.brought.flow(c.ID, r.From)
	f.used = now
	switch f.State(c.Number) {
	case custody.Taken:
		r.take()
		return false
	case custody.Delivered:
		if f.in[c.Number] == r.session {
			r.take() // which the node hears when the first of them is taken, not before
		} else {
			r.refuse()
		}
		return false
	}
	f.Deliver(c.Number)
	f.in[c.Number] = r.session
	r.kept = c.ID
	r.From, r.Service, r.Payload = c.Source, c.Service, c.Payload
	return true
}

// state is what is known of a chunk.
func (b *brought) state(id custody.ID) custody.State {
	if f := b.flows[id.InFlow()]; f != nil {
		return f.State(id.Number)
	}
	return custody.New
}

// done notes of a chunk that was given whether it was taken, or is not any more to be.
func (b *brought) done(id custody.ID, taken bool) {
	f := b.flows[id.InFlow()]
	if f == nil {
		return
	}
	if delete(f.in, id.Number); taken {
		f.Take(id.Number)
	} else {
		f.Return(id.Number)
	}
}

// flow is that of a chunk, a new one if there is none, which a node has brought.
func (b *brought) flow(id custody.ID, by frame.GUID) *broughtFlow {
	if f := b.flows[id.InFlow()]; f != nil {
		return f
	}
	if len(b.flows) >= maxFlows {
		b.makeRoom()
	}
	f := &broughtFlow{by: by, in: map[uint64]*session{}}
	b.flows[id.InFlow()] = f
	b.by[by]++
	return f
}

// makeRoom forgets a quarter of those that the node has brought which has brought most. Those of which an application
// has something stay: they are as many as chunks that it may have at most.
func (b *brought) makeRoom() {
	var most frame.GUID
	for by, n := range b.by {
		if n > b.by[most] {
			most = by
		}
	}
	var own []custody.ID
	for id, f := range b.flows {
		if f.by == most && f.Idle() {
			own = append(own, id)
		}
	}
	slices.SortFunc(own, func(x, y custody.ID) int { return b.flows[x].used.Compare(b.flows[y].used) })
	for _, id := range own[:(len(own)+3)/4] {
		b.forget(id)
	}
}

func (b *brought) forget(id custody.ID) {
	by := b.flows[id].by
	if b.by[by]--; b.by[by] == 0 {
		delete(b.by, by)
	}
	delete(b.flows, id)
}

// sweep forgets those of which no chunk holds any more.
func (b *brought) sweep(now time.Time) {
	for id, f := range b.flows {
		if f.Idle() && now.Sub(f.used) > custody.MaxKept+2*custody.MaxSkew {
			b.forget(id)
		}
	}
}

// liars are the places from which has come what its sender has not signed.
type liars struct {
	of          sources.Table[place, rate.Limiter]
	others, all *rate.Limiter
}

func (l *liars) init() {
	one := func() *rate.Limiter { return rate.NewLimiter(falseEach, falseEach) }
	l.of = sources.Table[place, rate.Limiter]{New: one, Most: maxSources, ForgetAfter: forgetSource}
	l.others, l.all = one(), rate.NewLimiter(falseAll, falseAll)
}

// charge counts one that has come from a place.
func (l *liars) charge(at place, now time.Time) {
	cmp.Or(l.of.Find(at.source(), now), l.others).AllowN(now, 1)
	l.all.AllowN(now, 1)
}

// believed says whether what comes from a place is looked at: always, if nothing false has come from there lately.
func (l *liars) believed(at place, now time.Time) bool {
	if r := l.of.Known(at.source()); r != nil {
		return r.TokensAt(now) >= 1 && l.all.TokensAt(now) >= 1
	}
	return l.of.Len() < maxSources || l.others.TokensAt(now) >= 1
}
