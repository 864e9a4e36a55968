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
	errKept       = errors.New("the chunk is stored already")
	errNotCustody = errors.New("not a chunk that a storage node may keep")
	errOrder      = errors.New("an earlier chunk of the sender was refused and has not come again")
)

// refusal records the chunk of a sender that was refused last. Until it comes again, other chunks
// of the sender are refused as well for a while, because the host has returned them to the sender.
type refusal struct {
	id    custody.ID // zero if the payload was not a chunk
	until time.Time
}

// arrival is a received chunk, and the reason why it is not stored; nil if it is.
type arrival struct {
	chunk hostapi.Chunk
	id    custody.ID
	piece Pending
	err   error
}

// takeCustody stores the chunks that are valid and for which there is room. It returns an error
// only if the host fails.
func (n *Node) takeCustody(batch []hostapi.Chunk, now time.Time) (err error) {
	all := make([]arrival, len(batch))
	for i, x := range batch {
		a := &all[i]
		a.chunk = x
		if a.err = n.check(a, now); a.err != nil && !errors.Is(a.err, errKept) {
			n.recordRefusal(a)
		}
	}
	n.storeAll(all, now)
	refused := 0
	for i := range all {
		a := &all[i]
		if a.err == nil || errors.Is(a.err, errKept) {
			err = errors.Join(err, n.Host.Take(a.chunk))
			continue
		}
		refused++
		err = errors.Join(err, n.Host.Refuse(a.chunk))
		n.recordRefusal(a)
		if !errors.Is(a.err, errOrder) {
			n.warnLimit.Warn(n.Log, "a chunk is not kept", "from", a.chunk.From, "error", a.err)
		}
	}
	n.mu.Lock()
	n.counters.Refused += uint64(refused)
	n.mu.Unlock()
	return err
}

// storeAll writes the checked chunks to the disk: all together or, if that fails, one by one.
func (n *Node) storeAll(all []arrival, now time.Time) {
	var pieces []Pending
	for _, a := range all {
		if a.err == nil {
			pieces = append(pieces, a.piece)
		}
	}
	failed := n.store.Put(pieces)
	if failed != nil {
		n.diskWarnLimit.Warn(n.Log, "the disk does not take chunks", "error", failed)
	}
	for i := range all {
		a := &all[i]
		if a.err != nil {
			continue
		}
		if failed != nil {
			if a.err = n.checkOrder(a, time.Now()); a.err == nil {
				a.err = n.store.Put([]Pending{a.piece})
			}
			if a.err != nil {
				n.recordRefusal(a)
			}
		}
		n.finish(a, now)
	}
}

// finish counts a chunk as stored, or stops counting it if it was not.
func (n *Node) finish(a *arrival, now time.Time) {
	k := Kept{ID: a.id, Place: a.piece.Place, Size: int64(len(a.piece.Bytes)), Since: now, expires: a.piece.expires}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.storing, k.ID)
	if a.err != nil {
		n.room.uncharge(&k)
		return
	}
	n.counters.Kept++
	n.scheduleFor(n.add(k), k.Source)
}

// checkOrder returns an error if a chunk of the same sender was refused before this one, and has
// not come again.
func (n *Node) checkOrder(a *arrival, now time.Time) error {
	r, ok := n.refused[a.chunk.From]
	if ok && now.Before(r.until) && r.id != a.id {
		return errOrder
	}
	return nil
}

// recordRefusal makes checkOrder refuse the sender's following chunks until this one comes again.
func (n *Node) recordRefusal(a *arrival) {
	if errors.Is(a.err, errOrder) {
		return
	}
	now := time.Now()
	if _, ok := n.refused[a.chunk.From]; !ok && len(n.refused) >= maxRefused {
		if n.forgetRefused(now); len(n.refused) >= maxRefused {
			return
		}
	}
	n.refused[a.chunk.From] = refusal{a.id, now.Add(refusalLifetime)}
}

func (n *Node) forgetRefused(now time.Time) {
	maps.DeleteFunc(n.refused, func(_ frame.GUID, r refusal) bool { return now.After(r.until) })
}

// check checks a received chunk, and counts it if it may be stored. Expensive checks come last.
func (n *Node) check(a *arrival, now time.Time) error {
	if a.chunk.Service&frame.Custody == 0 {
		return errNotCustody
	}
	c, err := custody.Parse(a.chunk.Payload)
	if err != nil {
		return err
	}
	if c.Source != a.chunk.From {
		return fmt.Errorf("it is from %v: %w", c.Source, errNotCustody)
	}
	a.id = c.ID
	if err := n.checkOrder(a, now); err != nil {
		return err
	}
	k := Kept{ID: c.ID, Place: a.chunk.Place, Size: int64(len(a.chunk.Payload))}
	if err := n.checkRoom(&k); err != nil {
		return err
	}
	if err := errors.Join(c.CheckKeep(now), c.Verify()); err != nil {
		return err
	}
	delete(n.refused, a.chunk.From)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.storing[c.ID] = struct{}{}
	n.room.charge(&k)
	a.piece = Pending{c.ID, k.Place, a.chunk.Payload, c.Until}
	return nil
}

// checkRoom returns an error if there is no room for a chunk, or if it is stored already.
func (n *Node) checkRoom(k *Kept) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.kept[k.ID]; ok {
		return errKept
	}
	if _, ok := n.storing[k.ID]; ok { // it is not known yet whether it will be stored
		return errOrder
	}
	return n.room.check(k)
}

// add adds a chunk to its destination. n.mu is held.
func (n *Node) add(k Kept) *destination {
	d := n.byName[k.Destination]
	if d == nil {
		d = &destination{name: k.Destination}
		n.byName[d.name] = d
	}
	n.kept[k.ID] = struct{}{}
	d.chunks = append(d.chunks, k)
	return d
}

// isKept reports whether a chunk is stored. n.mu is held.
func (n *Node) isKept(k Kept) bool {
	_, ok := n.kept[k.ID]
	return ok
}

// remove removes chunks that were delivered or, if reason is not nil, that cannot be delivered. The
// caller must not hold n.mu, because a disk may be slow.
func (n *Node) remove(chunks []Kept, reason error) {
	for _, k := range chunks {
		if err := n.store.Remove(k.ID, k.Place); err != nil {
			n.diskWarnLimit.Warn(n.Log, "a chunk that is over stays on the disk", "error", err)
		}
		if reason != nil {
			n.diskWarnLimit.Warn(n.Log, "a chunk is lost", "from", k.Source, "for", k.Destination, "number", k.Number, "error", reason)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range chunks {
		if !n.isKept(k) {
			continue
		}
		delete(n.kept, k.ID)
		n.room.uncharge(&k)
		if reason != nil {
			n.counters.Lost++
		} else {
			n.counters.HandedOn++
		}
	}
}

// sweep removes expired chunks, and destinations without chunks.
func (n *Node) sweep(now time.Time) {
	if !n.sweeping.TryLock() {
		return // the previous sweep still runs, because the disk is slow
	}
	defer n.sweeping.Unlock()
	n.mu.Lock()
	all := make([]*destination, 0, len(n.byName))
	for _, d := range n.byName {
		all = append(all, d)
	}
	n.mu.Unlock()
	for _, d := range all {
		n.mu.Lock()
		var expired []Kept
		for _, k := range d.chunks {
			if n.isKept(k) && k.expired(now, n.Keep) {
				expired = append(expired, k)
			}
		}
		n.mu.Unlock()
		n.remove(expired, custody.ErrExpired)
		n.mu.Lock()
		d.chunks = slices.DeleteFunc(d.chunks, func(k Kept) bool { return !n.isKept(k) })
		gone := n.byName[d.name] == d && len(d.chunks) == 0 && !d.active
		if gone {
			delete(n.byName, d.name)
		}
		n.mu.Unlock()
		if gone {
			n.store.RemoveEmpty(d.name)
		}
	}
}
