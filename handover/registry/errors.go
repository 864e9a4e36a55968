package registry

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/service"
)

// What the errors of this package wrap; tell them apart with errors.Is.
var (
	// ErrInvalid says that an input was wrong in itself. Nothing was changed.
	ErrInvalid = errors.New("not valid")
	// ErrConflict says that an input contradicts what is registered. Nothing was
	// changed.
	ErrConflict = errors.New("conflicts with what is registered")
	// ErrUnknown says that there is no such device, pool or class.
	ErrUnknown = errors.New("not registered")
	// ErrInUse says that something cannot be deleted as others refer to it.
	ErrInUse = errors.New("in use")
	// ErrConfigured says that something stands in the configuration, and is changed
	// and deleted there alone.
	ErrConfigured = errors.New("it stands in the configuration")
	// ErrExhausted says that a pool has no free address.
	ErrExhausted = errors.New("no free address in the pool")
	// ErrNotYours says that the address is not one the device may have.
	ErrNotYours = errors.New("not an address for this device")
	// ErrTaken says that another device has the address, or had it until just now.
	ErrTaken = errors.New("another device has the address")
	// ErrQuarantined says that the address was declined a short time ago.
	ErrQuarantined = errors.New("the address was declined by a client")
	// ErrNoLease says that the device holds no address.
	ErrNoLease = errors.New("the device has no lease")
	// ErrFull says that a bound on what is kept has been reached.
	ErrFull = errors.New("too many")
)

// Refusal is an input that was refused whole, with everything wrong about it.
type Refusal struct {
	// What was refused, like `device "car7"`.
	What   string
	Kind   error // ErrInvalid or ErrConflict
	Faults service.Faults
}

// Error lists the faults on one line.
func (r *Refusal) Error() string { return fmt.Sprintf("%s is %v: %v", r.What, r.Kind, r.Faults) }

// Unwrap makes errors.Is see the kind.
func (r *Refusal) Unwrap() error { return r.Kind }

func refusal(f service.Faults, kind error, what, name string) error {
	if len(f) == 0 {
		return nil
	}
	return &Refusal{What: fmt.Sprintf("%s %q", what, name), Kind: kind, Faults: f}
}
