package namestore

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// maxWaiting bounds the writes that wait, maxTogether those that go to the disk together.
	maxWaiting, maxTogether = 8192, 1024
	// sweepEvery is how often names are looked through that are over, and sweepNames how many then.
	sweepEvery, sweepNames = time.Second, 4096
)

// write is a record on its way to the disk.
type write struct {
	name    frame.GUID
	record  *record.Record
	done    func(changed bool, err error)
	changed bool
	err     error
}

// run writes until there is nothing more to come.
func (s *Store) run() {
	defer close(s.ended)
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	var together []*write
	wrote, flushed := false, true // since the last look
	failed := s.db.Failed()
	for {
		select {
		case <-failed:
			failed = nil
			sweep.Stop()
			s.Log.Error("the disk of the store of names has failed: names are read, and not written, until the program is started again", "folder", s.Dir, "error", s.db.Err())
		case w, more := <-s.writes:
			if !more {
				return
			}
			wrote, flushed = true, false
			together = s.gather(append(together[:0], w))
			s.commit(together)
			clear(together)
		case <-sweep.C:
			if err := s.sweep(); err != nil {
				s.Log.Warn("names that are over are not removed", "error", err)
			}
			if !wrote && !flushed { // what is in order on disk is found faster than in a table that is being written
				if _, err := s.db.AsyncFlush(); err != nil {
					s.Log.Warn("what was written is not put in order", "error", err)
				}
				flushed = true
			}
			wrote = false
		}
	}
}

// gather adds what waits.
func (s *Store) gather(together []*write) []*write {
	for len(together) < maxTogether {
		select {
		case w, more := <-s.writes:
			if !more {
				return together
			}
			together = append(together, w)
		default:
			return together
		}
	}
	return together
}

// commit writes records together, and tells each how that went.
func (s *Store) commit(together []*write) {
	b := s.db.NewBatch()
	defer s.closeBatch(b)
	now := s.Now()
	c := change{Store: s, batch: b, now: now, names: s.names.Load(), free: s.room(now), newest: make(map[frame.GUID][]byte, len(together))}
	for _, w := range together {
		w.changed, w.err = c.add(w)
	}
	if err := c.finish(); err != nil {
		for _, w := range together {
			w.err = errors.Join(w.err, err)
		}
	}
	for _, w := range together {
		w.done(w.changed && w.err == nil, w.err)
	}
}

// closeBatch gives a batch's memory back, unless the database has failed and may still use it.
func (s *Store) closeBatch(b *pebble.Batch) {
	if s.db.Err() == nil {
		_ = b.Close() // it has been committed, or is not wanted
	}
}

// change is what is written together.
type change struct {
	*Store
	batch  *pebble.Batch
	now    time.Time
	names  uint64
	free   uint64                // of the file system
	newest map[frame.GUID][]byte // what is in the batch
}

// add puts a record into the batch, unless it is there, or a newer one is. It says whether it did.
func (c *change) add(w *write) (bool, error) {
	bare := w.record.AppendTo(nil)
	have, found := c.newest[w.name]
	if !found {
		var err error
		if _, found, err = c.get(&have, w.name); err != nil {
			return false, err
		}
	}
	if found {
		old, err := record.Parse(have)
		switch {
		case err != nil:
			return false, fmt.Errorf("store of names: %v: %w", w.name, err)
		case old.Number == w.record.Number && bytes.Equal(have, bare):
			return false, nil
		case old.Number >= w.record.Number:
			return false, fmt.Errorf("record %d of %v, and %d is there: %w", w.record.Number, w.name, old.Number, record.ErrOld)
		}
	}
	if err := c.lacks(w.name, found); err != nil {
		return false, err
	}
	if !found {
		c.names++
	}
	c.newest[w.name] = bare
	if err := c.batch.Set(w.name[:], append(be.AppendUint64(nil, uint64(c.now.Unix())), bare...), nil); err != nil {
		return false, fmt.Errorf("store of names: %v: %w", w.name, err)
	}
	return true, nil
}

// lacks says why a name cannot be written, which is there already or is new.
func (c *change) lacks(name frame.GUID, there bool) error {
	need := uint64(minFree)
	if there {
		need = minMove
	}
	switch {
	case c.free < need:
		return fmt.Errorf("%v: %d MiB are free in %s, %d are needed: make room: %w", name, c.free>>20, c.Dir, need>>20, record.ErrFull)
	case !there && c.names >= c.MaxNames:
		return fmt.Errorf("%v: %d names: %w", name, c.names, record.ErrFull)
	}
	return nil
}

// finish has the disk take what is in the batch.
func (c *change) finish() error {
	if c.batch.Empty() {
		return nil
	}
	err := c.batch.Set(keyCount, be.AppendUint64(nil, c.names), nil)
	if err == nil {
		err = c.db.Commit(c.batch)
	}
	if err != nil {
		return fmt.Errorf("store of names %s: %w", c.Dir, err)
	}
	c.Store.names.Store(c.names)
	return nil
}

// sweep looks at some names, and forgets those whose records are over, and were written so long ago
// that none from before them can hold.
func (s *Store) sweep() error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: s.swept})
	if err != nil {
		return fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	defer it.Close()
	b := s.db.NewBatch()
	defer s.closeBatch(b)
	c := change{Store: s, batch: b, now: s.Now(), names: s.names.Load()}
	s.swept = nil // from the first on again, at the end
	seen := 0
	for more := it.First(); more; more = it.Next() {
		if seen == sweepNames {
			s.swept = bytes.Clone(it.Key())
			break
		}
		seen++
		if len(it.Key()) != len(frame.GUID{}) || !forgettable(it.Value(), c.now) {
			continue
		}
		if err := b.Delete(it.Key(), nil); err != nil {
			return fmt.Errorf("store of names %s: %w", s.Dir, err)
		}
		c.names--
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	return c.finish()
}

// forgettable says whether what is stored is of no use any more.
func forgettable(stored []byte, now time.Time) bool {
	if len(stored) < stamp {
		return false
	}
	r, err := record.Parse(stored[stamp:])
	age := now.Unix() - int64(be.Uint64(stored))
	return err == nil && r.Expired(now) && age > int64(record.KeepFor/time.Second)
}
