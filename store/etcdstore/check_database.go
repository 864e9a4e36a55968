package etcdstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/sys/unix"
)

// databaseFacts is what the log of a database is compared with.
type databaseFacts struct {
	used  int64  // bytes up to the last page that is used
	index uint64 // the last entry of the log that it has
	keys  int
}

// checkDatabase reads every page of a database that can be reached. bbolt does not expect
// damage: it panics, or reads beyond the end of what it has mapped.
func checkDatabase(ctx context.Context, file string) (facts databaseFacts, err error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return facts, fmt.Errorf("the database %s is missing (%w)", file, fs.ErrNotExist)
	case err != nil:
		return facts, err
	case info.Size() == 0:
		return facts, fmt.Errorf("the database %s is empty", file)
	}
	if err := unix.Access(file, unix.R_OK|unix.W_OK); err != nil {
		return facts, &fs.PathError{Op: "open", Path: file, Err: err}
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the database %s cannot be read: %v", file, p)
		}
	}()
	if err := readDatabase(ctx, file, info.Size(), &facts); err != nil {
		if ctx.Err() != nil {
			return facts, ctx.Err()
		}
		return facts, fmt.Errorf("the database %s cannot be read: %w", file, err)
	}
	return facts, nil
}

func readDatabase(ctx context.Context, file string, size int64, facts *databaseFacts) error {
	if err := viewDatabase(file, false, func(tx *bolt.Tx) error {
		if facts.used = tx.Size(); facts.used > size {
			return fmt.Errorf("it is cut off: %d bytes are left of %d", size, facts.used)
		}
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error { return readBucket(ctx, string(name), b, facts) })
	}); err != nil {
		return err
	}
	// Once more for the list of its free pages, which is read only if asked for.
	return viewDatabase(file, true, func(*bolt.Tx) error { return nil })
}

func viewDatabase(file string, freePages bool, view func(*bolt.Tx) error) error {
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: freePages, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(view)
}

// The names of etcd's buckets and keys, which are part of its format.
const (
	bucketKeys = "key"
	bucketMeta = "meta"
	keyIndex   = "consistent_index"
	// revisionBytes is how long the key of a stored value is; that of a deletion has a
	// mark more.
	revisionBytes = 17
)

func readBucket(ctx context.Context, name string, b *bolt.Bucket, facts *databaseFacts) error {
	if name == bucketMeta {
		if v := b.Get([]byte(keyIndex)); len(v) == 8 {
			facts.index = binary.BigEndian.Uint64(v)
		}
	}
	return b.ForEach(func(k, v []byte) error {
		if facts.keys++; facts.keys%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if name != bucketKeys {
			facts.keys--
			return nil
		}
		var kv mvccpb.KeyValue
		if len(k) != revisionBytes && len(k) != revisionBytes+1 {
			return fmt.Errorf("a revision of %d bytes", len(k))
		}
		if err := kv.Unmarshal(v); err != nil {
			return fmt.Errorf("the value of revision %x: %w", k, err)
		}
		return nil
	})
}
