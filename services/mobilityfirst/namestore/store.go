package namestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/pebbledb"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// DefaultMaxNames is how many names a store takes unless it is told.
	DefaultMaxNames = 10_000_000
	// DefaultCache is how much of what is on disk it keeps in memory, in bytes.
	DefaultCache = 72 << 20
	// minFree is what has to be free of the file system for a new name, and minMove for one that is
	// there already to be written anew, in bytes.
	minFree, minMove = 64 << 20, 16 << 20
	// lookFree is how often that is looked at, at most.
	lookFree = 250 * time.Millisecond
)

var be = binary.BigEndian

// Options is how a store is.
type Options struct {
	// Dir is the folder of it alone, which is made.
	Dir string
	// MaxNames bounds the names, Cache what is in memory of what is on disk, in bytes; zero stands
	// for the defaults.
	MaxNames uint64
	Cache    int64
	// Log receives the log; nil discards it.
	Log *slog.Logger
	// Now is the time; nil stands for time.Now.
	Now func() time.Time

	fs vfs.FS // nil: that of the machine
}

// Store keeps records. Its methods may be called concurrently. When its disk has failed it
// refuses to write, with the reason, and goes on reading; it has to be opened again then.
type Store struct {
	Options
	db     *pebbledb.DB
	writes chan *write
	names  atomic.Uint64
	ended  chan struct{} // closed when the writer has ended

	mu     sync.RWMutex // held for reading while something is put among writes
	closed bool

	// The writer alone has what follows.
	swept  []byte // the name up to which what is over has been looked for
	looked time.Time
	free   uint64 // of the file system, at the last look, in bytes
}

// Open opens the store of a folder, or makes one.
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
	db, err := pebbledb.Open(o.Dir, o.pebble(), o.Log)
	if err != nil {
		return nil, fmt.Errorf("store of names %s: %w", o.Dir, err)
	}
	s := &Store{Options: o, db: db, writes: make(chan *write, maxWaiting), ended: make(chan struct{})}
	if err := s.count(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	go s.run()
	return s, nil
}

// filterBits is how many bits of a filter there are for each name, by which a file is not looked into that has it not.
const filterBits = 10

// pebble is how the store is on disk. Keys and signatures can't be compressed.
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

// memTable is how much is in memory before it is written in order, in bytes, and memTables how many times that before writes
// wait for it.
const memTable, memTables = 8 << 20, 4

// keyCount has how many names there are. Names have keys of another length.
var keyCount = []byte("names")

// count reads how many names there are.
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

// Names is how many names there are.
func (s *Store) Names() uint64 { return s.names.Load() }

// Get appends the record of a name to b, as record.Parse reads it, and says whether there is one. It
// may be over.
func (s *Store) Get(b []byte, name frame.GUID) ([]byte, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return b, false, record.ErrClosed
	}
	_, found, err := s.get(&b, name)
	return b, found, err
}

// sincePage is how many names are looked at before who asks for them gets them.
const sincePage = 4096

// Since gives f the names that were written from a time on, and when, in their order and from one of them on, until f
// returns false or ctx ends, of which the error tells. Names may be written meanwhile. The store is not to be closed
// before it returns.
func (s *Store) Since(ctx context.Context, t time.Time, from frame.GUID, f func(name frame.GUID, written time.Time) bool) error {
	for next := from[:]; next != nil; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var all []written
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

// written says when a name was.
type written struct {
	name frame.GUID
	at   time.Time
}

// page looks at some names, and says where the next are.
func (s *Store) page(from []byte, t time.Time) (all []written, next []byte, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from})
	if err != nil {
		return nil, nil, fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	defer it.Close()
	seen := 0
	for more := it.First(); more; more = it.Next() {
		if seen == sincePage {
			return all, bytes.Clone(it.Key()), nil
		}
		seen++
		if v := it.Value(); len(it.Key()) == len(frame.GUID{}) && len(v) >= stamp && int64(be.Uint64(v)) >= t.Unix() {
			all = append(all, written{frame.GUID(it.Key()), time.Unix(int64(be.Uint64(v)), 0)})
		}
	}
	if err := it.Error(); err != nil {
		return nil, nil, fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	return all, nil, nil
}

// stamp is how long what stands before a record is: when it was written, in seconds since 1970.
const stamp = 8

// get is Get for those who know that the store is open.
func (s *Store) get(b *[]byte, name frame.GUID) (written int64, found bool, err error) {
	v, closer, err := s.db.Get(name[:])
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("store of names: %v: %w", name, err)
	}
	defer closer.Close()
	if len(v) < stamp {
		return 0, false, fmt.Errorf("store of names: %v: %d bytes", name, len(v))
	}
	*b = append(*b, v[stamp:]...)
	return int64(be.Uint64(v)), true, nil
}

// Write stores a record that has been verified, and returns when the disk has it. One that is there
// already is a success, and changes nothing. The error wraps record.ErrOld, ErrFull, ErrBusy,
// ErrClosed, or says what the disk says; if ctx ends it may be written yet.
func (s *Store) Write(ctx context.Context, r *record.Record) error {
	return record.Await(ctx, r, s.Start)
}

// Start is Write without waiting: done is called when the disk has it, or with what Write would
// return, and is told whether that has changed anything. It must not block. An error means that done is
// not called. The record's memory is the store's until then.
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

// Close ends it. What has been started is written before.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return record.ErrClosed
	}
	s.closed = true
	close(s.writes)
	s.mu.Unlock()
	<-s.ended
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("store of names %s: %w", s.Dir, err)
	}
	return nil
}

// room looks now and then how much of the file system is free. What cannot be looked at has room.
func (s *Store) room(now time.Time) uint64 {
	if now.Sub(s.looked) < lookFree {
		return s.free
	}
	s.looked, s.free = now, math.MaxUint64
	var fs unix.Statfs_t
	if err := unix.Statfs(s.Dir, &fs); err == nil {
		s.free = fs.Bavail * uint64(fs.Bsize)
	}
	return s.free
}
