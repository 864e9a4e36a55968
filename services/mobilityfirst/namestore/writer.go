package namestore

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// maxWaiting limits the waiting writes, and maxBatch those that are written to the disk
	// together.
	maxWaiting, maxBatch = 8192, 1024
	// sweepInterval is the time between two searches for expired names, and sweepBatch the number
	// of names that each examines.
	sweepInterval, sweepBatch = time.Second, 4096
)

// write is a record that is being written.
type write struct {
	name    frame.GUID
	record  *record.Record
	done    func(changed bool, err error)
	changed bool
	err     error
}

// run executes writes until the store is closed.
func (s *Store) run() {
	defer close(s.done)
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	var batch []*write
	wrote, flushed := false, true // since the last tick
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
			batch = s.gather(append(batch[:0], w))
			s.commit(batch)
			clear(batch)
		case <-sweep.C:
			s.logRoom()
			if err := s.sweep(); err != nil {
				s.Log.Warn("names that are over are not removed", "error", err)
			}
			if !wrote && !flushed { // names in sorted files are found faster than in a table in memory
				if _, err := s.db.AsyncFlush(); err != nil {
					s.Log.Warn("what was written is not put in order", "error", err)
				}
				flushed = true
			}
			wrote = false
		}
	}
}

// gather adds the waiting writes to a batch.
func (s *Store) gather(batch []*write) []*write {
	for len(batch) < maxBatch {
		select {
		case w, more := <-s.writes:
			if !more {
				return batch
			}
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// commit writes records together, and reports the result of each.
func (s *Store) commit(batch []*write) {
	b := s.db.NewBatch()
	defer s.closeBatch(b)
	now := s.Now()
	c := batchWriter{Store: s, batch: b, now: now, names: s.names.Load(), free: s.freeSpace(now), newest: make(map[frame.GUID][]byte, len(batch))}
	for _, w := range batch {
		w.changed, w.err = c.add(w)
	}
	if err := c.finish(); err != nil {
		for _, w := range batch {
			w.err = errors.Join(w.err, err)
		}
	}
	for _, w := range batch {
		w.done(w.changed && w.err == nil, w.err)
	}
}

// closeBatch releases a batch's memory, unless the database has failed and may still use it.
func (s *Store) closeBatch(b *pebble.Batch) {
	if s.db.Err() == nil {
		_ = b.Close() // the batch has been committed or is not needed
	}
}

// batchWriter collects the records that are written together.
type batchWriter struct {
	*Store
	batch  *pebble.Batch
	now    time.Time
	names  uint64
	free   uint64                // free space of the file system
	newest map[frame.GUID][]byte // the records in the batch
}

// add puts a record into the batch, unless the same or a newer one is stored, and reports whether
// it did.
func (c *batchWriter) add(w *write) (bool, error) {
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
	if err := c.checkRoom(w.name, found); err != nil {
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

// checkRoom returns an error if there is no room to write a name.
func (c *batchWriter) checkRoom(name frame.GUID, exists bool) error {
	need := uint64(minFree)
	if exists {
		need = minMove
	}
	switch {
	case c.free < need:
		return fmt.Errorf("%v: %s are free in %s, %s are needed: make room: %w", name, units.FormatAmount(c.free), c.Dir, units.FormatSize(int64(need)), record.ErrFull)
	case !exists && c.names >= c.MaxNames:
		return fmt.Errorf("%v: %d names: %w", name, c.names, record.ErrFull)
	}
	return nil
}

// finish commits the batch.
func (c *batchWriter) finish() error {
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

// sweep examines some names, and removes those whose records have expired and were written so long
// ago that no older record can be valid.
func (s *Store) sweep() error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: s.swept})
	if err != nil {
		return fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	defer it.Close()
	b := s.db.NewBatch()
	defer s.closeBatch(b)
	c := batchWriter{Store: s, batch: b, now: s.Now(), names: s.names.Load()}
	s.swept = nil // at the end it begins again with the first name
	seen := 0
	for more := it.First(); more; more = it.Next() {
		if seen == sweepBatch {
			s.swept = bytes.Clone(it.Key())
			break
		}
		seen++
		if len(it.Key()) != len(frame.GUID{}) || !removable(it.Value(), c.now) {
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

// removable reports whether a stored record is no longer needed.
func removable(stored []byte, now time.Time) bool {
	if len(stored) < stampSize {
		return false
	}
	r, err := record.Parse(stored[stampSize:])
	age := now.Unix() - int64(be.Uint64(stored))
	return err == nil && r.Expired(now) && age > int64(record.KeepFor/time.Second)
}
