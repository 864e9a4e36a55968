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
	// maxQueued limits the waiting writes, maxBatch those that are written together.
	maxQueued, maxBatch = 1024, 256
	// maxBatchBytes limits the bytes that are written together.
	maxBatchBytes = 4 << 20
	// roomInterval is the interval of checks of the file system, and the first delay before a
	// failed database is opened again. maxRetryDelay is the longest such delay.
	roomInterval  = 250 * time.Millisecond
	maxRetryDelay = 30 * time.Second
	// reopenTimeout bounds the reading of a database that is opened again.
	reopenTimeout = 5 * time.Minute
)

// request is a write that waits for the disk.
type request struct {
	ctx       context.Context //nolint:containedctx // the caller's, which may give up while the request waits
	ops       []store.Op
	mustExist bool
	done      chan error // buffered
}

// writer owns the database of a store. Only the writer's goroutine uses it.
type writer struct {
	*Store
	db      *pebbledb.DB // nil if it has failed
	head    *head
	summary summary
	retry   time.Time     // when to open the database again
	delay   time.Duration // before the next retry
}

// start opens the store of the folder, or creates one.
func (w *writer) start(ctx context.Context) error {
	dir := w.opts.Dir
	report, err := examine(ctx, dir)
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return err
	}
	if why := unwritable(dir, 0); why != nil { // a full file system may suffice
		return wrap(why)
	}
	if report.Fresh {
		if err := w.create(ctx); err != nil {
			return err
		}
		report.content.summary = w.summary
	}
	if err := releaseReserve(dir); err != nil {
		return wrap(err)
	}
	if err := clearUnfinishedDatabases(dir); err != nil {
		return wrap(err)
	}
	w.table.Load(report.content.entries, int64(report.content.revision))
	w.summary = report.content.summary
	if err := w.open(w.summary); err != nil {
		return wrap(err)
	}
	return nil
}

// create creates an empty store.
func (w *writer) create(ctx context.Context) error {
	w.fresh = true
	dir := w.opts.Dir
	if why := unwritable(dir, w.opts.MinFree+2*reserveBytes); why != nil {
		return wrap(why)
	}
	if err := clearUnfinishedDatabases(dir); err != nil {
		return wrap(err)
	}
	folder, sum, err := writeDatabase(ctx, dir, 0, slices.Values([]store.Entry(nil)), w.opts.Log)
	if err == nil {
		_, err = exchange(dir, folder, sum, "")
	}
	w.summary = sum
	return wrap(err)
}

// open opens the database for writing. It writes the present summary again, so that the log is
// allocated before the reserve takes the free space: on a full disk the controller writes the
// number of its start to that log.
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

// run performs requests until the store is closed, and opens a failed database again.
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
			} else if w.space.check() == nil {
				keepReserve(w.opts.Dir)
			}
		}
	}
}

// close closes the database, and refuses the waiting requests.
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

// gather returns a request and the requests waiting behind it.
func (w *writer) gather(r *request) []*request {
	together, bytes := []*request{r}, size(r.ops)
	for len(together) < maxBatch && bytes < maxBatchBytes {
		select {
		case r := <-w.requests:
			together, bytes = append(together, r), bytes+size(r.ops)
		default:
			return together
		}
	}
	return together
}

// writeGroup is a group of requests that are written together. Each request sees the effects of
// those before it.
type writeGroup struct {
	*writer
	summary summary
	latest  map[string]store.Change
	bytes   int64
}

// find returns the entry of a key after the requests so far.
func (g *writeGroup) find(key string) (store.Entry, bool) {
	if c, ok := g.latest[key]; ok {
		return c.Entry, !c.Deleted
	}
	return g.table.Find(key)
}

// add returns the changes of a request, or the reason why it is refused.
func (g *writeGroup) add(r *request) ([]store.Change, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	find := func(key string) (store.Entry, bool) {
		e, ok := g.find(key)
		if !ok {
			e = store.Entry{} // a removed entry has no revision
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

// commit writes requests together, and answers each of them.
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
	g := &writeGroup{writer: w, summary: w.summary, latest: make(map[string]store.Change), bytes: w.table.Bytes()}
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
	if err := w.head.write(headState{w.summary.id, w.summary.revision}); err != nil {
		w.lines.Warn(w.opts.Log, "the head of the store is not written: a loss of what follows would not be noticed", "error", err)
	}
	for i, r := range accepted {
		w.table.Change(changes[i], changes[i][0].Revision)
		r.done <- nil
	}
}

// store writes the changes of a group to the disk.
func (w *writer) store(g *writeGroup) error {
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

// fail closes a database that has failed, and returns the reason.
func (w *writer) fail(err error) *store.UnwritableError {
	why := asUnwritable(w.opts.Dir, w.opts.MinFree, err)
	w.setFailed(why)
	w.lines.Warn(w.opts.Log, "the database of the store has failed; it will be opened again, reads go on", "error", err)
	_ = w.db.Close()        // it has already failed
	_ = w.head.file.Close() // what it says may be older
	w.db = nil
	w.delayRetry()
	return why
}

// delayRetry postpones the next attempt to open the database.
func (w *writer) delayRetry() {
	w.delay = min(max(2*w.delay, roomInterval), maxRetryDelay)
	w.retry = time.Now().Add(w.delay)
}

// reopen opens a failed database again, as soon as the file system can be written.
func (w *writer) reopen() {
	if time.Now().Before(w.retry) || w.space.check() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reopenTimeout)
	defer cancel()
	if err := w.reopenDatabase(ctx); err != nil {
		w.setFailed(asUnwritable(w.opts.Dir, w.opts.MinFree, err))
		w.lines.Warn(w.opts.Log, "the database of the store cannot be opened again; it will be tried", "in", w.delay, "error", err)
		w.delayRetry()
		return
	}
	w.delay = 0
	w.setFailed(nil)
}

// reopenDatabase opens the database again with exactly the acknowledged content, which is in
// memory. A damaged database is kept aside and rewritten.
func (w *writer) reopenDatabase(ctx context.Context) error {
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
	if err := w.syncDatabase(report.content); err != nil {
		db := w.db
		w.db = nil
		return errors.Join(err, db.Close(), w.head.file.Close())
	}
	return nil
}

// rewrite replaces a damaged database by one with the content of the memory.
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

// syncDatabase makes the database equal to the memory, because it may contain a write that
// failed.
func (w *writer) syncDatabase(c content) error {
	if c.summary == w.summary {
		return nil
	}
	g := &writeGroup{writer: w, summary: w.summary, latest: make(map[string]store.Change)}
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
