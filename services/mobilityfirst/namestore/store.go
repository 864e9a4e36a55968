package namestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-net/sluice/internal/pebbledb"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// DefaultMaxNames is the default of Options.MaxNames.
	DefaultMaxNames = 10_000_000
	// DefaultCache is the default of Options.Cache in bytes.
	DefaultCache = 72 << 20
)

var be = binary.BigEndian

// ErrDiskFull means that the file system has no room to open a store.
var ErrDiskFull = errors.New("the file system is full; make room")

// Options configures a Store.
type Options struct {
	// Dir is the store's folder, which Open creates. Nothing else may use it.
	Dir string
	// MaxNames limits the number of names, and Cache the bytes that are cached in memory; zero
	// selects the defaults.
	MaxNames uint64
	Cache    int64
	// Log receives the log; nil discards it.
	Log *slog.Logger
	// Now returns the time; nil selects time.Now.
	Now func() time.Time

	fs vfs.FS // nil selects vfs.Default
}

// Store stores records. Its methods may be called concurrently. After its disk has failed, the
// store still reads, but refuses writes with the reason until it is opened again.
type Store struct {
	Options
	db     *pebbledb.DB
	writes chan *write
	names  atomic.Uint64
	done   chan struct{} // closed when the writer has ended

	mu     sync.RWMutex // held for reading while a write is queued
	closed bool

	// Only the writer uses the following fields.
	swept  []byte // the name at which the next sweep continues
	freeAt time.Time
	free   uint64 // free space in bytes, at freeAt

	logged   room // what was logged last
	loggedAt time.Time
}

// Open opens the store in a folder, or creates one. The error wraps ErrDiskFull if the file system
// has no room for that. With little room the store opens, refuses writes, and logs that.
func Open(o Options) (*Store, error) {
	if o.MaxNames == 0 {
		o.MaxNames = DefaultMaxNames
	}
	if o.Cache == 0 {
		o.Cache = DefaultCache
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.fs == nil {
		o.fs = vfs.Default
	}
	db, err := pebbledb.Open(o.Dir, o.pebble(), o.Log)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	if err != nil {
		return nil, fmt.Errorf("store of names %s: %w", o.Dir, err)
	}
	s := &Store{Options: o, db: db, writes: make(chan *write, maxWaiting), done: make(chan struct{})}
	if err := s.count(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.logRoom()
	go s.run()
	return s, nil
}

// filterBits is the number of bits per name in a file's filter, which tells whether the file may
// contain the name.
const filterBits = 10

// pebble returns the options of the database. It uses no compression, because keys and signatures
// cannot be compressed.
func (o *Options) pebble() *pebble.Options {
	p := &pebble.Options{
		FS: o.fs, FormatMajorVersion: pebble.FormatNewest, CacheSize: o.Cache,
		MemTableSize: memTable, MemTableStopWritesThreshold: memTables,
	}
	p.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(filterBits)
	}
	return p
}

// memTable is the size in bytes of a table in memory before it is written to disk, and memTables
// the number of such tables at which writes have to wait.
const memTable, memTables = 8 << 20, 4

// keyCount is the key of the number of names. Keys of names have another length.
var keyCount = []byte("names")

// count reads the number of names.
func (s *Store) count() error {
	b, closer, err := s.db.Get(keyCount)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	defer closer.Close()
	if len(b) != 8 {
		return fmt.Errorf("store of names %s: the number of names has %d bytes", s.Dir, len(b))
	}
	s.names.Store(be.Uint64(b))
	return nil
}

// Names returns the number of names.
func (s *Store) Names() uint64 { return s.names.Load() }

// Get appends the record of a name to b, as record.Parse reads it, and reports whether there is
// one. The record may have expired.
func (s *Store) Get(b []byte, name frame.GUID) ([]byte, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return b, false, record.ErrClosed
	}
	_, found, err := s.get(&b, name)
	return b, found, err
}

// pageSize is the number of names that Since reads before it calls f with them.
const pageSize = 4096

// Since calls f with the names that were written at time t or later, and when they were, ordered by
// name and beginning at from, until f returns false or ctx ends, which it returns as an error.
// Names may be written meanwhile. The store must not be closed before Since returns.
func (s *Store) Since(ctx context.Context, t time.Time, from frame.GUID, f func(name frame.GUID, written time.Time) bool) error {
	for next := from[:]; next != nil; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var all []writtenName
		var err error
		if all, next, err = s.page(next, t); err != nil {
			return err
		}
		for _, x := range all {
			if !f(x.name, x.at) {
				return nil
			}
		}
	}
	return nil
}

// writtenName is a name and the time at which it was written.
type writtenName struct {
	name frame.GUID
	at   time.Time
}

// page reads some names, and returns the key of the next one.
func (s *Store) page(from []byte, t time.Time) (all []writtenName, next []byte, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from})
	if err != nil {
		return nil, nil, fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	defer it.Close()
	seen := 0
	for more := it.First(); more; more = it.Next() {
		if seen == pageSize {
			return all, bytes.Clone(it.Key()), nil
		}
		seen++
		if v := it.Value(); len(it.Key()) == len(frame.GUID{}) && len(v) >= stampSize && int64(be.Uint64(v)) >= t.Unix() {
			all = append(all, writtenName{frame.GUID(it.Key()), time.Unix(int64(be.Uint64(v)), 0)})
		}
	}
	if err := it.Error(); err != nil {
		return nil, nil, fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	return all, nil, nil
}

// stampSize is the size in bytes of the time before a record: when it was written, in seconds since
// 1970.
const stampSize = 8

// get returns the record of a name, as Get does, and the time at which it was written in seconds
// since 1970. The store must be open.
func (s *Store) get(b *[]byte, name frame.GUID) (written int64, found bool, err error) {
	v, closer, err := s.db.Get(name[:])
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("store of names: %v: %w", name, err)
	}
	defer closer.Close()
	if len(v) < stampSize {
		return 0, false, fmt.Errorf("store of names: %v: %d bytes", name, len(v))
	}
	*b = append(*b, v[stampSize:]...)
	return int64(be.Uint64(v)), true, nil
}

// Write stores a verified record, and returns when it is on the disk. It succeeds without a change
// if the same record is stored already. The error wraps record.ErrOld, ErrFull, ErrBusy or
// ErrClosed, or is that of the disk; if ctx ends the record may still be written.
func (s *Store) Write(ctx context.Context, r *record.Record) error {
	return record.Await(ctx, r, s.Start)
}

// Start begins to store a verified record without waiting. It calls done when the record is on the
// disk, or with the error that Write would return. changed is set if the stored record has changed.
// done must not block. The record's memory belongs to the store until done is called. If Start
// returns an error, it does not call done.
func (s *Store) Start(r *record.Record, done func(changed bool, err error)) error {
	w := &write{name: r.GUID(), record: r, done: done}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return record.ErrClosed
	}
	select {
	case s.writes <- w:
		return nil
	default:
		return record.ErrBusy
	}
}

// Close closes the store after all started writes have ended.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return record.ErrClosed
	}
	s.closed = true
	close(s.writes)
	s.mu.Unlock()
	<-s.done
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	return nil
}
