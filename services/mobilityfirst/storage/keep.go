package storage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

var (
	errHave  = errors.New("it is kept already")
	errRoom  = errors.New("there is no room")
	errNone  = errors.New("it is none that its sender lets others keep")
	errOrder = errors.New("one before it has not come again")
)

// refusal is the chunk of a sender that was refused last; until it comes again others of the sender are, too, for a
// while: the host has given them back to it.
type refusal struct {
	id    custody.ID // the zero value for what is no chunk
	until time.Time
}

// arrival is a chunk that came, and why it is not kept; nil if it is.
type arrival struct {
	chunk hostapi.Chunk
	id    custody.ID
	piece Piece
	err   error
}

// keep takes chunks into custody: those that it may, and for which there is room. An error is the host's.
func (n *Node) keep(batch []hostapi.Chunk, now time.Time) (err error) {
	all := make([]arrival, len(batch))
	for i, x := range batch {
		a := &all[i]
		a.chunk = x
		if a.err = n.accept(a, now); a.err != nil && !errors.Is(a.err, errHave) {
			n.notKept(a)
		}
	}
	n.put(all, now)
	refused := 0
	for i := range all {
		a := &all[i]
		if a.err == nil || errors.Is(a.err, errHave) {
			err = errors.Join(err, n.Host.Take(a.chunk))
			continue
		}
		refused++
		err = errors.Join(err, n.Host.Refuse(a.chunk))
		n.notKept(a)
		if !errors.Is(a.err, errOrder) {
			n.strange.Warn(n.Log, "a chunk is not kept", "from", a.chunk.From, "error", a.err)
		}
	}
	n.mu.Lock()
	n.counters.Refused += uint64(refused)
	n.mu.Unlock()
	return err
}

// put has the disk keep the chunks that were accepted: together, or if it does not take them so, one by one.
func (n *Node) put(all []arrival, now time.Time) {
	var pieces []Piece
	for _, a := range all {
		if a.err == nil {
			pieces = append(pieces, a.piece)
		}
	}
	failed := n.store.Put(pieces)
	if failed != nil {
		n.trouble.Warn(n.Log, "the disk does not take chunks", "error", failed)
	}
	for i := range all {
		a := &all[i]
		if a.err != nil {
			continue
		}
		if failed != nil {
			if a.err = n.inTurn(a, time.Now()); a.err == nil {
				a.err = n.store.Put([]Piece{a.piece})
			}
			if a.err != nil {
				n.notKept(a)
			}
		}
		n.settle(a, now)
	}
}

// settle counts a chunk that was accepted as kept, or no more.
func (n *Node) settle(a *arrival, now time.Time) {
	k := Kept{ID: a.id, Size: int64(len(a.piece.Bytes)), Since: now, until: a.piece.until}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.coming, k.ID)
	if a.err != nil {
		n.uncharge(k)
		return
	}
	n.counters.Kept++
	n.rouseFor(n.add(k), k.Source)
}

// inTurn says whether a chunk is behind none of its sender's that was refused just now.
func (n *Node) inTurn(a *arrival, now time.Time) error {
	r, is := n.refused[a.chunk.From]
	if is && now.Before(r.until) && r.id != a.id {
		return errOrder
	}
	return nil
}

// notKept has what comes behind a chunk from its sender refused, until it comes again.
func (n *Node) notKept(a *arrival) {
	if errors.Is(a.err, errOrder) {
		return
	}
	now := time.Now()
	if _, is := n.refused[a.chunk.From]; !is && len(n.refused) >= maxRefused {
		if n.forgetRefused(now); len(n.refused) >= maxRefused {
			return
		}
	}
	n.refused[a.chunk.From] = refusal{a.id, now.Add(afterRefused)}
}

func (n *Node) forgetRefused(now time.Time) {
	maps.DeleteFunc(n.refused, func(_ frame.GUID, r refusal) bool { return now.After(r.until) })
}

// accept looks at a chunk that came, and counts it if it is to be kept. What costs comes last.
func (n *Node) accept(a *arrival, now time.Time) error {
	if a.chunk.Service&frame.Custody == 0 {
		return errNone
	}
	c, err := custody.Parse(a.chunk.Payload)
	if err != nil {
		return err
	}
	if c.Source != a.chunk.From {
		return fmt.Errorf("it is from %v: %w", c.Source, errNone)
	}
	a.id = c.ID
	if err := n.inTurn(a, now); err != nil {
		return err
	}
	size := int64(len(a.chunk.Payload))
	if err := n.hasRoom(c.ID, size); err != nil {
		return err
	}
	if err := errors.Join(c.CheckKeep(now), c.Verify()); err != nil {
		return err
	}
	delete(n.refused, a.chunk.From)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.coming[c.ID] = struct{}{}
	n.by[c.Source] += charge(size)
	n.used += charge(size)
	a.piece = Piece{c.ID, a.chunk.Payload, c.Until}
	return nil
}

// hasRoom says whether there is room for a chunk.
func (n *Node) hasRoom(id custody.ID, size int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, is := n.have[id]; is {
		return errHave
	}
	if _, is := n.coming[id]; is { // whether it will be there is not known yet
		return errOrder
	}
	others := n.used - n.by[id.Source]
	if charge(size)+n.by[id.Source] > (n.Size-others)/shareOfOne {
		return fmt.Errorf("%d bytes of its sender's are kept, %d of others', %d in all: %w", n.by[id.Source], others, n.Size, errRoom)
	}
	return nil
}

// charge is what a chunk of so many bytes counts.
func charge(size int64) int64 { return max(size, leastCharge) }

// uncharge counts a chunk no more. n.mu is held.
func (n *Node) uncharge(k Kept) {
	n.used -= charge(k.Size)
	if n.by[k.Source] -= charge(k.Size); n.by[k.Source] == 0 {
		delete(n.by, k.Source)
	}
}

// add has a chunk be one for its destination. n.mu is held.
func (n *Node) add(k Kept) *destination {
	d := n.of[k.Destination]
	if d == nil {
		d = &destination{name: k.Destination}
		n.of[d.name] = d
	}
	n.have[k.ID] = struct{}{}
	d.chunks = append(d.chunks, k)
	return d
}

// has says whether a chunk is not over. n.mu is held.
func (n *Node) has(k Kept) bool {
	_, is := n.have[k.ID]
	return is
}

// drop forgets chunks that were handed on, or that cannot be: why is nil, or says that. n.mu is not held: a disk
// takes its time.
func (n *Node) drop(chunks []Kept, why error) {
	for _, k := range chunks {
		if err := n.store.Remove(k.ID); err != nil {
			n.trouble.Warn(n.Log, "a chunk that is over stays on the disk", "error", err)
		}
		if why != nil {
			n.trouble.Warn(n.Log, "a chunk is lost", "from", k.Source, "for", k.Destination, "number", k.Number, "error", why)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range chunks {
		if !n.has(k) {
			continue
		}
		delete(n.have, k.ID)
		n.uncharge(k)
		if why != nil {
			n.counters.Lost++
		} else {
			n.counters.HandedOn++
		}
	}
}

// sweep forgets what holds no more, and names for which there is nothing.
func (n *Node) sweep(now time.Time) {
	if !n.sweeping.TryLock() {
		return // the last goes on: a disk takes its time
	}
	defer n.sweeping.Unlock()
	n.mu.Lock()
	all := make([]*destination, 0, len(n.of))
	for _, d := range n.of {
		all = append(all, d)
	}
	n.mu.Unlock()
	for _, d := range all {
		n.mu.Lock()
		var over []Kept
		for _, k := range d.chunks {
			if n.has(k) && k.over(now, n.Keep) {
				over = append(over, k)
			}
		}
		n.mu.Unlock()
		n.drop(over, custody.ErrExpired)
		n.mu.Lock()
		d.chunks = slices.DeleteFunc(d.chunks, func(k Kept) bool { return !n.has(k) })
		gone := n.of[d.name] == d && len(d.chunks) == 0 && !d.active
		if gone {
			delete(n.of, d.name)
		}
		n.mu.Unlock()
		if gone {
			n.store.Tidy(d.name)
		}
	}
}
