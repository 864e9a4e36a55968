package record

import (
	"context"
	"errors"
	"fmt"
)

// Errors that stores of records wrap.
var (
	// ErrOld means that the store has a newer record, or a different one with the same number.
	ErrOld = errors.New("there is a newer one")
	// ErrFull means that there is no room for another name.
	ErrFull = errors.New("there is no room for another name")
	// ErrBusy means that the operation would have to wait for too long. It may be tried again.
	ErrBusy = errors.New("too much is waiting")
	// ErrClosed means that the store is closed.
	ErrClosed = errors.New("the store of names is closed")
)

// Await writes a record with a store's start function, and waits for the result or until ctx ends.
// In the latter case the record may still be written.
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

// KeepFor is how long a store keeps a record after it was written, even if the record has expired.
// Until then the record's number is needed to refuse older records that have not expired.
const KeepFor = MaxValidity + MaxSkew
