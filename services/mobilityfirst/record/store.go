package record

import (
	"context"
	"errors"
	"fmt"
)

// What stores of records refuse to do; their errors wrap these.
var (
	// ErrOld is for a record that is older than what is there, or as old and another.
	ErrOld = errors.New("there is a newer one")
	// ErrFull is for a name for which there is no room.
	ErrFull = errors.New("there is no room for another name")
	// ErrBusy is for what would have to wait for too long. It may be tried again.
	ErrBusy = errors.New("too much is waiting")
	// ErrClosed is for what comes after a store's end.
	ErrClosed = errors.New("the store of names is closed")
)

// Await has a store start to write a record, and waits until it tells what has become of that, or ctx ends: then the record may be
// written yet.
func Await(ctx context.Context, r *Record, start func(r *Record, done func(changed bool, err error)) error) error {
	done := make(chan error, 1)
	if err := start(r, func(_ bool, err error) { done <- err }); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("writing %v: %w", r.GUID(), context.Cause(ctx))
	}
}

// KeepFor is how long a store has a record after it was written, even if it is over: until then an older
// one could hold, which is known by its number.
const KeepFor = MaxValidity + MaxSkew
