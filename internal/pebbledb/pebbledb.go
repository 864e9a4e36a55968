// Package pebbledb opens Pebble databases in such a way that a failing disk does not end
// the process. Pebble answers most errors of writing by Logger.Fatalf or a panic, some of
// them with its locks in a state from which nothing can recover. So a DB of this package
// keeps such errors from Pebble: its file system notes the first one, and from then on
// writes nothing and reports success. Commit returns the error. Whoever uses the DB closes
// it and opens another when the disk works again.
package pebbledb

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// DB is a Pebble database that may fail.
type DB struct {
	*pebble.DB
	log    *slog.Logger
	once   sync.Once
	failed chan struct{}
	err    error // set before failed is closed
}

// Open opens the database of a folder, or makes one if the options allow it. It sets the
// logger, the event listener and the file system of the options; a file system that they
// have is used below. The caller sees to it that no other process uses the folder.
func Open(dir string, o *pebble.Options, log *slog.Logger) (_ *DB, err error) {
	d := &DB{log: log, failed: make(chan struct{})}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	o.FS = &fileSystem{o.FS, d}
	o.Logger = logger{d}
	o.EventListener = &pebble.EventListener{
		BackgroundError: func(err error) { d.fail(err) },
		DataCorruption:  func(info pebble.DataCorruptionInfo) { d.fail(fmt.Errorf("%s is damaged: %w", info.Path, info.Details)) },
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("open the database %s: %v", dir, p)
		}
	}()
	if d.DB, err = pebble.Open(dir, o); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", dir, err)
	}
	if err := d.Err(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Failed returns a channel that is closed when the database fails.
func (d *DB) Failed() <-chan struct{} { return d.failed }

// Err returns why the database has failed, or nil.
func (d *DB) Err() error {
	select {
	case <-d.failed:
		return d.err
	default:
		return nil
	}
}

// fail makes the database fail for good. It may be called with Pebble's locks held.
func (d *DB) fail(err error) {
	d.once.Do(func() {
		d.err = err
		close(d.failed)
	})
}

// Commit writes a batch and waits until the disk has it, or until the database fails. After
// an error the disk may have the batch or not.
func (d *DB) Commit(b *pebble.Batch) error {
	if err := d.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { // ends with the commit; if the database fails meanwhile, when the disk answers
		defer func() {
			if p := recover(); p != nil {
				done <- panicked(p)
			}
		}()
		done <- b.Commit(pebble.Sync)
	}()
	select {
	case err := <-done:
		if err != nil {
			d.fail(err)
		}
	case <-d.failed:
	}
	return d.Err()
}

// panicked returns what was passed to panic as an error.
func panicked(p any) error {
	if err, ok := p.(error); ok {
		return err
	}
	return fmt.Errorf("%v", p)
}

// Close closes the database. One that has failed is closed in the background, since its
// disk may not answer.
func (d *DB) Close() error {
	if d.Err() == nil {
		return d.DB.Close()
	}
	go func() { // ends when the disk answers what is under way
		defer func() { _ = recover() }() // it has failed already, and that is told
		_ = d.DB.Close()
	}()
	return nil
}

// logger passes Pebble's log on.
type logger struct{ db *DB }

// Infof implements pebble.Logger.
func (l logger) Infof(format string, args ...any) { l.db.log.Debug(fmt.Sprintf(format, args...)) }

// Errorf implements pebble.Logger.
func (l logger) Errorf(format string, args ...any) { l.db.log.Debug(fmt.Sprintf(format, args...)) }

// Fatalf implements pebble.Logger. It returns, and Pebble with it, to a caller that asks
// for Err.
func (l logger) Fatalf(format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok {
			l.db.fail(err)
			return
		}
	}
	l.db.fail(fmt.Errorf(format, args...))
}
