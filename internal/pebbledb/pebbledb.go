// Package pebbledb opens Pebble databases in such a way that a failing disk does not end the
// process. Pebble reacts to most write errors by Logger.Fatalf or a panic, in some cases with its
// locks in a state from which it cannot recover. A DB of this package therefore hides such errors
// from Pebble: its file system records the first one, and from then on it writes nothing and
// reports success. Commit returns the recorded error. The owner of the DB has to close it, and to
// open another one when the disk works again.
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

// Open opens the database of a folder, or creates one if the options allow it. It sets the logger,
// the event listener and the file system of the options. If the options already have a file system,
// the new one uses that one. The caller ensures that no other process uses the folder.
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
			err = fmt.Errorf("open the database %s: %w", dir, d.reason(panicked(p)))
		}
	}()
	if d.DB, err = pebble.Open(dir, o); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", dir, d.reason(err))
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

// reason returns the error of the disk if the database has failed, and err otherwise: Pebble may
// have reported something else, because the database hides errors of the disk from it.
func (d *DB) reason(err error) error {
	if failed := d.Err(); failed != nil {
		return failed
	}
	return err
}

// fail marks the database as failed for good. It may be called with Pebble's locks held.
func (d *DB) fail(err error) {
	d.once.Do(func() {
		d.err = err
		close(d.failed)
	})
}

// Commit writes a batch, and waits until it is on the disk or the database fails. After an error
// the batch may or may not be on the disk.
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

// panicked converts the argument of a panic to an error.
func panicked(p any) error {
	if err, ok := p.(error); ok {
		return err
	}
	return fmt.Errorf("%v", p)
}

// Close closes the database. A failed database is closed in the background, because its disk may
// not respond.
func (d *DB) Close() error {
	if d.Err() == nil {
		return d.DB.Close()
	}
	go func() { // ends when the disk has responded to the operations in flight
		defer func() { _ = recover() }() // the database has already failed, and its error has been reported
		_ = d.DB.Close()
	}()
	return nil
}

// logger forwards Pebble's log at level debug.
type logger struct{ db *DB }

// Infof implements pebble.Logger.
func (l logger) Infof(format string, args ...any) { l.db.log.Debug(fmt.Sprintf(format, args...)) }

// Errorf implements pebble.Logger.
func (l logger) Errorf(format string, args ...any) { l.db.log.Debug(fmt.Sprintf(format, args...)) }

// Fatalf implements pebble.Logger. It records the error and returns, and so does Pebble. The caller
// of Pebble then has to check Err.
func (l logger) Fatalf(format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok {
			l.db.fail(err)
			return
		}
	}
	l.db.fail(fmt.Errorf(format, args...))
}
