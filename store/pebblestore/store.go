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
	// maxBytes limits the keys and values of a store, because they are in memory.
	maxBytes = 1 << 30
	// maxChange limits the keys and values of one Apply, in bytes; etcd has the same limit.
	maxChange = 1536 << 10
	// operationTimeout bounds each write, in addition to the deadline of its context.
	operationTimeout = 10 * time.Second
	// closeTimeout bounds how long Close waits for a disk that does not respond.
	closeTimeout = 10 * time.Second
)

// Options configure a store.
type Options struct {
	// Dir is the data folder. It is created if necessary, readable by its owner only.
	Dir string
	// MinFree is how many bytes of the folder's file system must be free for writes to be
	// accepted: DefaultMinFree if zero, and at least LeastMinFree.
	MinFree uint64
	// Snapshots determines which snapshots Run keeps.
	Snapshots SnapshotOptions
	// Log receives log records; nil means slog.Default.
	Log *slog.Logger

	fs vfs.FS // file system of the database that is written; nil means that of the machine
}

// Store keeps its entries in a Pebble database, and in memory. Open creates one.
type Store struct {
	opts  Options
	table *table.Table
	space *spaceCheck
	fresh bool

	requests chan *request
	stop     chan struct{} // closed by Close
	ended    chan struct{} // closed when the writer has ended
	stopOnce sync.Once
	unlock   func()
	lines    lograte.Limit

	mu     sync.Mutex
	failed *store.UnwritableError // why there is no database now; nil if there is one
}

var _ store.Store = (*Store)(nil)

// Open opens the store of a data folder, or creates one if there was none. Writes are accepted
// only while the file system can be written; see store.UnwritableError.
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
		opts: o, table: table.New(), space: &spaceCheck{dir: o.Dir, need: o.MinFree}, unlock: unlock,
		requests: make(chan *request, maxQueued), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	w := &writer{Store: s}
	if err := w.start(ctx); err != nil {
		unlock()
		return nil, fmt.Errorf("%w%s", err, hint(err))
	}
	go w.run()
	return s, nil
}

// Fresh reports whether there was no store when this one was opened.
func (s *Store) Fresh() bool { return s.fresh }

// Damaged returns the stores that have been replaced, because they were damaged or by a
// restoration, and that are kept beside this one until they are removed.
func (s *Store) Damaged() []Aside { return asides(s.opts.Dir) }

// wrap adds the package's name to an error.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pebblestore: %w", err)
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (store.Entry, error) {
	e, err := s.table.Get(ctx, key)
	return e, wrap(err)
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	all, err := s.table.List(ctx, prefix)
	return all, wrap(err)
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan store.Change, error) {
	changes, err := s.table.Watch(ctx, prefix)
	return changes, wrap(err)
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

// write passes operations to the writer, and waits until they are on the disk. If ctx ends
// during the write, they may be performed nevertheless.
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
	for i := range ops { // the caller may modify its memory after ctx has ended
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

// Room returns the reason why the store accepts no writes now, or nil if it does.
func (s *Store) Room() *store.UnwritableError {
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	if why := s.space.check(); why != nil {
		return why
	}
	return failed
}

// setFailed sets the reason why there is no database, or nil if there is one.
func (s *Store) setFailed(why *store.UnwritableError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = why
}

// Close implements store.Store. It completes the present write, unless the disk does not respond
// for some seconds.
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

// Run maintains a store until ctx ends: it keeps snapshots, and calls told with the reason when
// writes begin to be refused, and with nil when they are accepted again. told must not block.
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
