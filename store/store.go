package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/sluice-net/sluice/internal/units"
)

// Errors that a caller can distinguish with errors.Is.
var (
	// ErrNotFound means that no value is stored under the key.
	ErrNotFound = errors.New("not found in the store")
	// ErrConflict means that a condition of Apply did not hold: somebody else changed, created
	// or deleted the key first. Nothing was applied.
	ErrConflict = errors.New("changed by somebody else in the meantime")
	// ErrClosed means that the store has been closed.
	ErrClosed = errors.New("the store is closed")
)

// UnwritableError means that a write was refused because the store cannot be written now: its
// file system is full, or nearly full, or read-only, or its disk fails. Reads still work, and
// writes work again as soon as the store can be written.
type UnwritableError struct {
	// Path is the folder of the store.
	Path string
	// Free is the free space of its file system, and Need the required space, in bytes. Both are
	// zero if Cause is set.
	Free, Need uint64
	// Cause is the error of the disk, or nil if its file system is full.
	Cause error
}

func (e *UnwritableError) Error() string {
	switch {
	case errors.Is(e.Cause, syscall.EROFS):
		return fmt.Sprintf("the file system of %s is read-only: a disk turns so when it fails: look into the kernel's log, and mount it for writing again; what has to be stored is accepted then", e.Path)
	case e.Cause != nil:
		return fmt.Sprintf("%s cannot be written: %v; look into the kernel's log; it is tried again by itself", e.Path, e.Cause)
	}
	return fmt.Sprintf("the file system of %s is full: %s are free and %s are needed; make room, and what has to be stored is accepted again",
		e.Path, units.FormatAmount(e.Free), units.FormatSize(int64(e.Need)))
}

// Unwrap returns the error of the disk.
func (e *UnwritableError) Unwrap() error { return e.Cause }

type essential struct{}

// Essential marks a write without which a controller cannot start, such as the number of the
// start. On a full file system it uses the space that a store reserves, which is small: a few
// hundred bytes once in the life of a process.
func Essential(ctx context.Context) context.Context {
	return context.WithValue(ctx, essential{}, true)
}

// IsEssential reports whether ctx was returned by Essential.
func IsEssential(ctx context.Context) bool { return ctx.Value(essential{}) != nil }

// Entry is one key with its value.
type Entry struct {
	Key   string
	Value []byte
	// Revision is the store's revision at the entry's last change. The store's revision
	// increases with every change. It is never zero for a stored entry.
	Revision int64
}

// Store keeps small values under path-like keys. All methods are safe for
// concurrent use, observe their context and return errors that name the key.
type Store interface {
	// Get returns the entry of the key, or ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)
	// List returns all entries whose key starts with the prefix, sorted by
	// key. An empty prefix lists everything.
	List(ctx context.Context, prefix string) ([]Entry, error)
	// Put stores the value, whether or not the key exists.
	Put(ctx context.Context, key string, value []byte) error
	// Delete removes the key. It returns ErrNotFound if the key does not exist.
	Delete(ctx context.Context, key string) error
	// Apply performs all operations or none of them. If a condition does not hold, the error is
	// ErrConflict.
	Apply(ctx context.Context, ops ...Op) error
	// Watch reports every change below the prefix that happens after it returns, in order. The
	// channel is closed when ctx ends, the store is closed, or the receiver falls too far
	// behind. A receiver whose ctx has not ended should then list and watch again.
	Watch(ctx context.Context, prefix string) (<-chan Change, error)
	// Close releases all resources. Further calls return ErrClosed.
	Close() error
}

// Change is one change that a Watch reports.
type Change struct {
	// Entry is the new state; of a deleted key only Key and Revision are set.
	Entry
	Deleted bool
}

// Op is one operation of Apply. Make it with OpPut, OpCreate, OpUpdate or
// OpDelete.
type Op struct {
	Key   string
	Value []byte
	// Delete removes the key instead of storing Value.
	Delete bool
	// Conditional makes the whole Apply depend on the key having the given Revision; zero means
	// that the key must not exist.
	Conditional bool
	Revision    int64
}

// OpPut returns an operation that stores the value, whether or not the key exists.
func OpPut(key string, value []byte) Op { return Op{Key: key, Value: value} }

// OpCreate returns an operation that stores the value if the key does not exist.
func OpCreate(key string, value []byte) Op {
	return Op{Key: key, Value: value, Conditional: true}
}

// OpUpdate returns an operation that stores the value if the key still has the revision.
func OpUpdate(key string, value []byte, revision int64) Op {
	return Op{Key: key, Value: value, Conditional: true, Revision: revision}
}

// OpDelete returns an operation that removes the key, if it exists.
func OpDelete(key string) Op { return Op{Key: key, Delete: true} }

// CheckKey returns an error for a key that no implementation accepts.
func CheckKey(key string) error {
	switch {
	case key == "":
		return errors.New("store: empty key: name what is stored, like \"sos/whitelist/1\"")
	case strings.HasPrefix(key, "/"), strings.HasSuffix(key, "/"), strings.Contains(key, "//"):
		return fmt.Errorf("store: key %q: write path elements separated by single slashes, none at either end", key)
	case strings.ContainsRune(key, 0):
		return fmt.Errorf("store: key %q contains a NUL byte", key)
	case len(key) > 1024:
		return fmt.Errorf("store: key of %d bytes: at most 1024", len(key))
	}
	return nil
}

// CheckOps returns an error for a list of operations that no implementation accepts.
func CheckOps(ops []Op) error {
	if len(ops) > 128 {
		return fmt.Errorf("store: %d operations at once: at most 128", len(ops))
	}
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if err := CheckKey(op.Key); err != nil {
			return err
		}
		if seen[op.Key] {
			return fmt.Errorf("store: key %q occurs twice in one Apply", op.Key)
		}
		seen[op.Key] = true
	}
	return nil
}
