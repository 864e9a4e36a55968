package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/store"
)

const (
	// DefaultMinFree is how much of its file system the store leaves to others unless
	// told otherwise, in bytes.
	DefaultMinFree = 16 << 20
	// LeastMinFree is the least that it can be told, in bytes: etcd's next log file, twice.
	LeastMinFree = 2 * segment

	// ahead is how far the database's blocks are allocated beyond what it uses: what is
	// written between two looks at its size goes there. slack is the least.
	ahead = 16 << 20
	slack = 4 << 20
	// kept is what there has to be for a start.
	kept = 512 << 10
	// keptBack is what a start is given besides: the log's last file, once more.
	keptBack = segment + 1<<20
	// writeCost is what a small write may take of the database: the pages on the way to
	// the leaf it goes to, which etcd shares among all writes of a tenth of a second.
	writeCost = 16 << 10
)

// room has writes go only where there is place for them already. etcd ends the process
// when the file system is full; so it must not find out. The log writes into files that
// etcd allocates one in advance, and the database into blocks that are allocated here. A
// write that would need more than that is refused, and so are all while less than need is
// free, for the log's next file and the snapshots of raft.
type room struct {
	dir    string
	need   uint64
	size   func() int64 // what the database uses, as of the last commit
	commit func()

	mu       sync.Mutex
	database *os.File
	reserved int64 // the database's blocks are allocated up to here
	pending  int64 // what may have been written to the database since its last commit
	flying   int64 // the part of it that is not answered yet
	refusal  *store.NoRoomError
	stuck    bool // etcd could not allocate its log's next file

	cannotKeep bool // the file system does not allocate in advance
}

// admit lets a write of so many bytes pass or refuses it; done tells that it is over.
func (r *room) admit(ctx context.Context, bytes int) (done func(), err error) {
	cost := writeCost + 2*int64(bytes)
	r.mu.Lock()
	defer r.mu.Unlock()
	least := int64(slack)
	if store.IsEssential(ctx) {
		least = kept
	} else if refusal := r.look(); refusal != nil {
		return nil, refusal
	}
	if r.pending+cost > slack {
		r.commit()
		r.pending = r.flying
	}
	if err := r.reserve(r.size(), least); err != nil {
		return nil, err
	}
	r.pending += cost
	r.flying += cost
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.flying -= cost
	}, nil
}

// now says why writes are refused; nil if they are not.
func (r *room) now() *store.NoRoomError {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.look()
}

// look asks the file system. Writes that are refused stay so until half as much again is
// free, or they would come and go with each file of somebody else's. The lock is held.
func (r *room) look() *store.NoRoomError {
	free, err := freeBytes(r.dir)
	if err != nil {
		free = 0 // a folder that is not there has no room either
	}
	need := r.need
	if r.refusal != nil {
		need += r.need / 2
	}
	if r.refusal = nil; free < need || r.stuck {
		r.refusal = &store.NoRoomError{Path: r.dir, Free: free, Need: need}
	}
	return r.refusal
}

// reserve allocates the blocks of a database that uses size bytes: ahead more if there is
// room, least more or an error. The lock is held, or nobody else knows r yet.
func (r *room) reserve(size, least int64) error {
	if r.reserved >= size+ahead/2 {
		return nil
	}
	for _, more := range []int64{ahead, least} {
		if r.reserved >= size+more {
			return nil
		}
		// Where there is not room for all of it, some file systems take what there is.
		if free, err := freeBytes(r.dir); more == ahead && (err != nil || free < uint64(size+more-r.reserved)) {
			continue
		}
		err := unix.Fallocate(int(r.database.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size+more)
		switch {
		case err == nil:
			r.reserved = size + more
			return nil
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			r.reserved = math.MaxInt64 / 2 // what is free has to do
			return nil
		case !noRoom(err):
			return fmt.Errorf("etcdstore: allocate room in %s: %w", r.database.Name(), err)
		}
	}
	free, _ := freeBytes(r.dir) // zero if it is not known
	return &store.NoRoomError{Path: r.dir, Free: free, Need: max(r.need, ahead)}
}

// noRoom says whether an error is that of a full file system.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// prepare allocates what etcd writes when it starts.
func (r *room) prepare(found Report) error {
	if found.Fresh {
		free, err := freeBytes(r.dir)
		if need := r.need + 2*segment + ahead + keptBack; err == nil && free < need {
			err = &store.NoRoomError{Path: r.dir, Free: free, Need: need}
		}
		return err
	}
	if err := r.openDatabase(); err != nil {
		return err
	}
	err := r.reserve(found.used, kept)
	if err == nil {
		err = r.release()
	}
	if err != nil {
		r.close()
	}
	return err
}

func (r *room) openDatabase() (err error) {
	if r.database, err = os.OpenFile(databaseFile(r.dir), os.O_RDWR, 0); err != nil {
		return fmt.Errorf("etcdstore: allocate room: %w", err)
	}
	return nil
}

// open has writes go through to a database that etcd has opened.
func (r *room) open(size func() int64, commit func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size, r.commit = size, commit
	if r.database == nil {
		return r.openDatabase()
	}
	return nil
}

// release gives back what is kept back for a start: etcd cuts off its log's last file and
// allocates it again, which needs other blocks where those that were freed are not given
// out at once.
func (r *room) release() error {
	err := os.Remove(r.backFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("etcdstore: make room for the start: %w", err)
	}
	folder, err := os.Open(r.dir)
	if err != nil {
		return fmt.Errorf("etcdstore: make room for the start: %w", err)
	}
	defer folder.Close()
	if err := unix.Syncfs(int(folder.Fd())); err != nil {
		return fmt.Errorf("etcdstore: make room for the start: %w", err)
	}
	return nil
}

// keepBack allocates what the next start needs if it is not there; if there is no room
// now, it is tried again.
func (r *room) keepBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.backFile())
	if r.cannotKeep || err == nil && info.Size() == keptBack {
		return
	}
	if free, err := freeBytes(r.dir); err != nil || free < keptBack {
		return
	}
	f, err := os.OpenFile(r.backFile(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, keptBack); err != nil {
		r.cannotKeep = !noRoom(err)
		_ = os.Remove(r.backFile())
	}
}

func (r *room) backFile() string { return filepath.Join(r.dir, "reserve") }

// spent says whether only a new etcd can use the room that there is.
func (r *room) spent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err := freeBytes(r.dir)
	return r.stuck && err == nil && free >= r.need+r.need/2
}

func (r *room) setStuck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck = true
}

func (r *room) close() {
	if r.database != nil {
		_ = r.database.Close() // nothing is written by it
	}
}

// freeBytes is what a process without privileges may still write, in bytes. A file system
// without inodes has nothing.
func freeBytes(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("etcdstore: what is free at %s: %w", dir, err)
	}
	if s.Files > 0 && s.Ffree == 0 {
		return 0, nil
	}
	return s.Bavail * uint64(s.Bsize), nil
}
