package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/internal/table"
)

const (
	// maxBytes bounds the keys and values of a store: they are in memory.
	maxBytes = 1 << 30
	// maxChange bounds the keys and values of one Apply, in bytes, as etcd does.
	maxChange = 1536 << 10
	// operationTimeout bounds each write of a caller that set no deadline.
	operationTimeout = 10 * time.Second
	// closeTimeout bounds how long Close waits for a disk that does not answer.
	closeTimeout = 10 * time.Second
)

// Options says how a store works.
type Options struct {
	// Dir is the data folder. It is made, readable by its owner only.
	Dir string
	// MinFree is how many bytes of the folder's file system have to be free for writes to
	// be accepted; DefaultMinFree if zero, LeastMinFree at least.
	MinFree uint64
	// Snapshots says which snapshots Run keeps.
	Snapshots SnapshotOptions
	// Log receives log records; nil stands for slog.Default.
	Log *slog.Logger

	fs vfs.FS // below the database that is written; nil: that of the machine
}

// Store keeps its entries in a Pebble database, and in memory. Make it with Open.
type Store struct {
	opts  Options
	table *table.Table
	room  *room
	fresh bool

	requests chan *request
	stop     chan struct{} // closed by Close
	ended    chan struct{} // closed when the writer has ended
	stopOnce sync.Once
	unlock   func()
	lines    lograte.Limit

	mu     sync.Mutex
	failed *store.UnwritableError // why there is no database now; nil if there is
}

var _ store.Store = (*Store)(nil)

// Open opens the store of a data folder, or makes one where there has been none. What it
// stores is accepted only while the file system takes it; see store.UnwritableError.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.MinFree == 0 {
		o.MinFree = DefaultMinFree
	}
	o.MinFree = max(o.MinFree, LeastMinFree)
	unlock, err := lock(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		opts: o, table: table.New(), room: &room{dir: o.Dir, need: o.MinFree}, unlock: unlock,
		requests: make(chan *request, maxWaiting), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	w := &writer{Store: s}
	if err := w.start(ctx); err != nil {
		unlock()
		return nil, fmt.Errorf("%w%s", err, advice(err))
	}
	go w.run()
	return s, nil
}

// Fresh reports whether there was no store when this one was opened.
func (s *Store) Fresh() bool { return s.fresh }

// Damaged lists the damaged stores that are kept beside this one, until they are removed.
func (s *Store) Damaged() []Aside { return asides(s.opts.Dir) }

// named adds the package's name to an error.
func named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pebblestore: %w", err)
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	e, err := s.table.Get(ctx, key)
	return e, named(err)
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	all, err := s.table.List(ctx, prefix)
	return all, named(err)
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan store.Change, error) {
	changes, err := s.table.Watch(ctx, prefix)
	return changes, named(err)
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte) error {
	return s.Apply(ctx, store.OpPut(key, value))
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	if err := s.write(ctx, []store.Op{store.OpDelete(key)}, true); err != nil {
		return fmt.Errorf("pebblestore: delete %q: %w", key, err)
	}
	return nil
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops ...store.Op) error {
	if err := store.CheckOps(ops); err != nil {
		return err
	}
	if err := s.write(ctx, ops, false); err != nil {
		return fmt.Errorf("pebblestore: apply %s: %w", keys(ops), err)
	}
	return nil
}

// write has the writer perform operations, and waits until the disk has them. If ctx ends
// while the disk works on them they may be performed all the same.
func (s *Store) write(ctx context.Context, ops []store.Op, mustExist bool) error {
	if n := size(ops); n > maxChange {
		return fmt.Errorf("%d bytes at once: at most %d", n, maxChange)
	}
	if err := s.table.Usable(ctx); err != nil {
		return err
	}
	if !store.IsEssential(ctx) {
		if why := s.Room(); why != nil {
			return why
		}
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	ops = slices.Clone(ops)
	for i := range ops { // the caller's memory may change after ctx has ended
		ops[i].Value = append([]byte{}, ops[i].Value...)
	}
	r := &request{ctx: ctx, ops: ops, mustExist: mustExist, done: make(chan error, 1)}
	select {
	case s.requests <- r:
	case <-ctx.Done():
		return fmt.Errorf("the disk is slow, and too many writes wait for it: %w", ctx.Err())
	case <-s.stop:
		return store.ErrClosed
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the disk has not answered: %w", ctx.Err())
	case <-s.ended:
		select {
		case err := <-r.done:
			return err
		default:
			return store.ErrClosed
		}
	}
}

// size returns how many bytes of keys and values the operations have.
func size(ops []store.Op) (bytes int) {
	for _, op := range ops {
		bytes += len(op.Key) + len(op.Value)
	}
	return bytes
}

func keys(ops []store.Op) string {
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = op.Key
	}
	return strings.Join(names, ", ")
}

// Room returns why the store accepts no writes now, or nil if it does.
func (s *Store) Room() *store.UnwritableError {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if why := s.room.look(); why != nil {
		return why
	}
	return failed
}

// setFailed notes why there is no database, or nil that there is.
func (s *Store) setFailed(why *store.UnwritableError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = why
}

// Close implements store.Store. What is being written is written before, unless the disk
// does not answer for some seconds.
func (s *Store) Close() error {
	first := false
	s.stopOnce.Do(func() { close(s.stop); first = true })
	if !first {
		return nil
	}
	s.table.Close()
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case <-s.ended:
		s.unlock()
		return nil
	case <-t.C:
		return errors.New("pebblestore: close: the disk has not answered") // the folder stays locked until the process ends
	}
}

// Run looks after a store until ctx ends: it keeps snapshots, and calls told when writes
// begin to be refused, with the reason, and with nil when they are accepted again. told must
// not wait.
func (s *Store) Run(ctx context.Context, told func(*store.UnwritableError)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if o := s.opts.Snapshots; o.Keep > 0 {
		wg.Go(func() { s.keepSnapshots(ctx, o) })
	}
	t := time.NewTicker(roomInterval)
	defer t.Stop()
	refused := false
	for {
		if why := s.Room(); (why != nil) != refused {
			refused = why != nil
			told(why)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}
