package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/pebbledb"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/internal/table"
)

const (
	// maxWaiting bounds the writes that wait, maxTogether those that go to the disk
	// together.
	maxWaiting, maxTogether = 1024, 256
	// maxTogetherBytes bounds what goes to the disk together.
	maxTogetherBytes = 4 << 20
	// roomInterval is how often the file system is looked at, and a database that has
	// failed is opened again at first; retryMost is how often at last.
	roomInterval = 250 * time.Millisecond
	retryMost    = 30 * time.Second
	// reopenTimeout bounds the reading of a database that is opened again.
	reopenTimeout = 5 * time.Minute
)

// request is a write on its way to the disk.
type request struct {
	ctx       context.Context //nolint:containedctx // the caller's, which may give up while the request waits
	ops       []store.Op
	mustExist bool
	done      chan error // has room for the answer
}

// writer is what a goroutine of its own has of a store: the database.
type writer struct {
	*Store
	db      *pebbledb.DB // nil if it has failed
	head    *head
	summary summary
	retry   time.Time     // when the database is opened again
	delay   time.Duration // after the next failure
}

// start opens the store of the folder, or makes one.
func (w *writer) start(ctx context.Context) error {
	dir := w.opts.Dir
	report, err := examine(ctx, dir)
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return err
	}
	if why := unwritable(dir, 0); why != nil { // a full one may do
		return named(why)
	}
	if report.Fresh {
		if err := w.create(ctx); err != nil {
			return err
		}
		report.content.summary = w.summary
	}
	if err := releaseReserve(dir); err != nil {
		return named(err)
	}
	if err := clearUnfinishedDatabases(dir); err != nil {
		return named(err)
	}
	w.table.Load(report.content.entries, int64(report.content.revision))
	w.summary = report.content.summary
	if err := w.open(w.summary); err != nil {
		return named(err)
	}
	return nil
}

// create makes an empty store.
func (w *writer) create(ctx context.Context) error {
	w.fresh = true
	dir := w.opts.Dir
	if why := unwritable(dir, w.opts.MinFree+2*reserveBytes); why != nil {
		return named(why)
	}
	if err := clearUnfinishedDatabases(dir); err != nil {
		return named(err)
	}
	folder, sum, err := writeDatabase(ctx, dir, 0, slices.Values([]store.Entry(nil)), w.opts.Log)
	if err == nil {
		_, err = exchange(dir, folder, sum, "")
	}
	w.summary = sum
	return named(err)
}

// open opens the database for writing. It writes the summary that the database has once
// more, so that the log is allocated before the reserve takes what is free: on a full disk
// the controller writes the number of its start there.
func (w *writer) open(has summary) error {
	db, err := openDatabase(databaseDir(w.opts.Dir), false, w.opts.fs, w.opts.Log)
	if err != nil {
		return err
	}
	b := db.NewBatch()
	err = b.Set([]byte(summaryKey), has.encode(), nil)
	if err == nil {
		err = db.Commit(b)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	if w.head, err = openHead(w.opts.Dir); err != nil {
		return errors.Join(err, db.Close())
	}
	w.db = db
	keepReserve(w.opts.Dir)
	return b.Close()
}

// run writes what is asked for until the store is closed, and opens a database that has
// failed again.
func (w *writer) run() {
	defer close(w.ended)
	defer w.close()
	t := time.NewTicker(roomInterval)
	defer t.Stop()
	for {
		select {
		case <-w.stop:
			return
		case r := <-w.requests:
			w.commit(w.gather(r))
		case <-t.C:
			if w.db != nil && w.db.Err() != nil {
				w.fail(w.db.Err())
			}
			if w.db == nil {
				w.reopen()
			} else if w.room.look() == nil {
				keepReserve(w.opts.Dir)
			}
		}
	}
}

// close closes the database, and refuses what still waits.
func (w *writer) close() {
	if w.db != nil {
		if err := errors.Join(w.head.close(), w.db.Close()); err != nil {
			w.opts.Log.Warn("the store is not closed in order; nothing that was acknowledged is lost", "error", err)
		}
	}
	for {
		select {
		case r := <-w.requests:
			r.done <- store.ErrClosed
		default:
			return
		}
	}
}

// gather returns a request and what waits behind it.
func (w *writer) gather(r *request) []*request {
	together, bytes := []*request{r}, size(r.ops)
	for len(together) < maxTogether && bytes < maxTogetherBytes {
		select {
		case r := <-w.requests:
			together, bytes = append(together, r), bytes+size(r.ops)
		default:
			return together
		}
	}
	return together
}

// group is what goes to the disk together: each request sees those before it.
type group struct {
	*writer
	summary summary
	latest  map[string]store.Change
	bytes   int64
}

// find returns the entry of a key as the requests so far leave it.
func (g *group) find(key string) (store.Entry, bool) {
	if c, ok := g.latest[key]; ok {
		return c.Entry, !c.Deleted
	}
	return g.table.Find(key)
}

// add returns what a request changes, or why it is refused.
func (g *group) add(r *request) ([]store.Change, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	find := func(key string) (store.Entry, bool) {
		e, ok := g.find(key)
		if !ok {
			e = store.Entry{} // of a removed one the revision is no condition
		}
		return e, ok
	}
	if err := table.Conditions(r.ops, r.mustExist, find); err != nil {
		return nil, err
	}
	if most := int64(maxBytes); g.bytes+int64(size(r.ops)) > most {
		return nil, fmt.Errorf("the store has %d bytes, and may have %d: remove what is not needed", g.bytes, most)
	}
	changes := table.Changes(r.ops, int64(g.summary.revision)+1, find)
	if len(changes) == 0 {
		return nil, nil
	}
	g.summary.revision++
	for _, c := range changes {
		old, had := find(c.Key)
		g.summary.replace(old, had, c.Entry, !c.Deleted)
		g.bytes += int64(len(c.Value) - len(old.Value))
		g.latest[c.Key] = c
	}
	return changes, nil
}

// commit writes requests together, and answers each.
func (w *writer) commit(together []*request) {
	if w.db == nil {
		why := w.Room()
		for _, r := range together {
			if why == nil {
				r.done <- errors.New("the store is being opened again")
			} else {
				r.done <- why
			}
		}
		return
	}
	g := &group{writer: w, summary: w.summary, latest: make(map[string]store.Change), bytes: w.table.Bytes()}
	var accepted []*request
	var changes [][]store.Change
	for _, r := range together {
		c, err := g.add(r)
		if err != nil || len(c) == 0 {
			r.done <- err
			continue
		}
		accepted, changes = append(accepted, r), append(changes, c)
	}
	if len(accepted) == 0 {
		return
	}
	if err := w.store(g); err != nil {
		why := w.fail(err)
		for _, r := range accepted {
			r.done <- why
		}
		return
	}
	w.summary = g.summary
	if err := w.head.write(mark{w.summary.id, w.summary.revision}); err != nil {
		w.lines.Warn(w.opts.Log, "the head of the store is not written: a loss of what follows would not be noticed", "error", err)
	}
	for i, r := range accepted {
		w.table.Change(changes[i], changes[i][0].Revision)
		r.done <- nil
	}
}

// store writes what a group changes to the disk.
func (w *writer) store(g *group) error {
	b := w.db.NewBatch()
	for key, c := range g.latest {
		var err error
		if c.Deleted {
			err = b.Delete(databaseKey(key), nil)
		} else {
			k, v := encodeEntry(c.Entry)
			err = b.Set(k, v, nil)
		}
		if err != nil {
			return err
		}
	}
	if err := b.Set([]byte(summaryKey), g.summary.encode(), nil); err != nil {
		return err
	}
	if err := w.db.Commit(b); err != nil {
		return err // the batch may still be in use
	}
	return b.Close()
}

// fail gives up a database that has failed, and returns why.
func (w *writer) fail(err error) *store.UnwritableError {
	why := cause(w.opts.Dir, w.opts.MinFree, err)
	w.setFailed(why)
	w.lines.Warn(w.opts.Log, "the database of the store has failed; it will be opened again, reads go on", "error", err)
	_ = w.db.Close()        // it has failed already
	_ = w.head.file.Close() // what it says may be older
	w.db = nil
	w.again()
	return why
}

// again puts off the next attempt to open the database.
func (w *writer) again() {
	w.delay = min(max(2*w.delay, roomInterval), retryMost)
	w.retry = time.Now().Add(w.delay)
}

// reopen opens a database that has failed, as soon as the file system takes writes.
func (w *writer) reopen() {
	if time.Now().Before(w.retry) || w.room.look() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reopenTimeout)
	defer cancel()
	if err := w.recover(ctx); err != nil {
		w.setFailed(cause(w.opts.Dir, w.opts.MinFree, err))
		w.lines.Warn(w.opts.Log, "the database of the store cannot be opened again; it will be tried", "in", w.delay, "error", err)
		w.again()
		return
	}
	w.delay = 0
	w.setFailed(nil)
}

// recover opens the database again, with what is in memory: what was acknowledged, and
// nothing else. One that is damaged is put aside, and written anew.
func (w *writer) recover(ctx context.Context) error {
	dir := w.opts.Dir
	report, err := examine(ctx, dir)
	if err != nil {
		return err
	}
	fault := report.Err()
	if report.Denied {
		return fault
	}
	if fault != nil || report.Fresh || report.content.id != w.summary.id {
		return w.rewrite(ctx, fault)
	}
	if err := w.open(report.content.summary); err != nil {
		return err
	}
	if err := w.undo(report.content); err != nil {
		db := w.db
		w.db = nil
		return errors.Join(err, db.Close(), w.head.file.Close())
	}
	return nil
}

// rewrite puts a database of what is in memory in the place of a damaged one.
func (w *writer) rewrite(ctx context.Context, fault error) error {
	dir, reason := w.opts.Dir, "it is missing"
	if fault != nil {
		reason = fault.Error()
	}
	if err := clearUnfinishedDatabases(dir); err != nil {
		return err
	}
	folder, sum, err := writeDatabase(ctx, dir, w.summary.revision, slices.Values(slices.Collect(w.table.All())), w.opts.Log)
	if err != nil {
		return err
	}
	aside, err := exchange(dir, folder, sum, reason+"; the running controller has written it anew, nothing is lost")
	if err != nil {
		return err
	}
	w.opts.Log.Error("the store was damaged while it was in use; it has been written anew from memory, nothing is lost", "damage", reason, "aside", aside)
	w.summary = sum
	return w.open(sum)
}

// undo has the database hold what is in memory: a write that failed may be in it.
func (w *writer) undo(c content) error {
	if c.summary == w.summary {
		return nil
	}
	g := &group{writer: w, summary: w.summary, latest: make(map[string]store.Change)}
	g.summary.revision = max(c.revision, w.summary.revision)
	there := make(map[string]int64, len(c.entries))
	for _, e := range c.entries {
		there[e.Key] = e.Revision
		if have, ok := w.table.Find(e.Key); !ok || have.Revision != e.Revision {
			g.latest[e.Key] = store.Change{Entry: have, Deleted: !ok}
		}
	}
	for e := range w.table.All() {
		if _, ok := there[e.Key]; !ok {
			g.latest[e.Key] = store.Change{Entry: e}
		}
	}
	if err := w.store(g); err != nil {
		return err
	}
	w.summary = g.summary
	return nil
}
