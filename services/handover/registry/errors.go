package registry

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/kit"
)

// Errors of this package wrap one of these; tell them apart with errors.Is.
var (
	// ErrInvalid says that an input was wrong by itself. Nothing was changed.
	ErrInvalid = errors.New("not valid")
	// ErrConflict says that an input conflicts with what is registered. Nothing was changed.
	ErrConflict = errors.New("conflicts with what is registered")
	// ErrUnknown says that there is no such device, pool or class.
	ErrUnknown = errors.New("not registered")
	// ErrExhausted says that a pool has no free address.
	ErrExhausted = errors.New("no free address in the pool")
	// ErrNotYours says that the device may not have the address.
	ErrNotYours = errors.New("not an address for this device")
	// ErrTaken says that another device has the address, or had it until just now.
	ErrTaken = errors.New("another device has the address")
	// ErrQuarantined says that the address was declined a short time ago.
	ErrQuarantined = errors.New("the address was declined by a client")
	// ErrNoLease says that the device holds no address.
	ErrNoLease = errors.New("the device has no lease")
	// ErrFull says that a bound on what is stored has been reached.
	ErrFull = errors.New("too many")
)

// refusal returns an error for a refused input, with all its faults, or nil if there are none.
// kind is ErrInvalid or ErrConflict.
func refusal(f kit.Faults, kind error, what, name string) error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%s %q is %w: %w", what, name, kind, f)
}
