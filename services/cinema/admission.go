package cinema

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// maxBursts bounds the burst requests to ingress gateways that are in progress at the same time.
	maxBursts = 256
	// maxPendingChanges bounds the changes of viewers that one gateway may have in progress.
	maxPendingChanges = 256
	// maxComparisons bounds how many passwords are compared at the same time, because each
	// comparison occupies a processor for some ten milliseconds. For each gateway, only one
	// comparison runs at a time.
	maxComparisons = 2
	// maxViewerFailures bounds the wrong passwords that are compared for one viewer within
	// failureWindow, and maxGatewayFailures those of all viewers of a gateway. Further attempts
	// are refused until the window has passed.
	maxViewerFailures  = 5
	maxGatewayFailures = 100
	failureWindow      = 10 * time.Second
)

var (
	errWrongPassword   = errors.New("wrong password")
	errTooManyFailures = fmt.Errorf("no more than %d wrong passwords of a viewer in %v: wait", maxViewerFailures, failureWindow)
)

// admissionLimiter bounds what each gateway may do at the same time, so that no gateway slows
// down the others.
type admissionLimiter struct {
	comparisons chan struct{}
	bursts      chan struct{}
	accepted    *gatewayapi.PasswordCache

	mu       sync.Mutex
	gateways map[string]*gatewayAdmission
}

func newAdmissionLimiter() *admissionLimiter {
	return &admissionLimiter{
		comparisons: make(chan struct{}, maxComparisons), bursts: make(chan struct{}, maxBursts),
		accepted: gatewayapi.NewPasswordCache(), gateways: map[string]*gatewayAdmission{},
	}
}

// gateway returns the limiter of a gateway, which it creates at the first call. The caller has
// checked that the controller knows the gateway.
func (a *admissionLimiter) gateway(gateway string) *gatewayAdmission {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.gateways[gateway]
	if x == nil {
		x = &gatewayAdmission{changes: make(chan struct{}, maxPendingChanges), comparison: make(chan struct{}, 1), failures: map[string]int{}}
		a.gateways[gateway] = x
	}
	return x
}

func (a *admissionLimiter) forget(gateway string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.gateways, gateway)
}

// acquireBurst reports whether another burst request may start. It returns false while maxBursts
// requests are in progress. If it returns true, it has counted the request, and the caller calls
// releaseBurst when the request has ended.
func (a *admissionLimiter) acquireBurst() bool {
	select {
	case a.bursts <- struct{}{}:
		return true
	default:
		return false
	}
}

func (a *admissionLimiter) releaseBurst() { <-a.bursts }

// gatewayAdmission limits the pending changes, the password comparisons and the wrong passwords of
// one gateway.
type gatewayAdmission struct {
	changes    chan struct{}
	comparison chan struct{} // held while a password is compared

	mu          sync.Mutex
	windowStart time.Time      // start of the window in which failures are counted
	failures    map[string]int // by viewer
	failureSum  int
}

// acquire reports whether another change of a viewer may start. It returns false while
// maxPendingChanges changes of the gateway are in progress. If it returns true, it has counted the
// change, and the caller calls release when the change has ended.
func (a *gatewayAdmission) acquire() bool {
	select {
	case a.changes <- struct{}{}:
		return true
	default:
		return false
	}
}

func (a *gatewayAdmission) release() { <-a.changes }

// checkPassword compares a viewer's password with a hash. It returns nil if the password is
// right, errWrongPassword, errTooManyFailures, or the cause of ctx if the comparison could not
// start in time.
func (a *gatewayAdmission) checkPassword(ctx context.Context, all *admissionLimiter, viewer, hash, password string) error {
	if password == "" {
		return errWrongPassword // no channel has an empty password, so no comparison is needed
	}
	if all.accepted.Contains(hash, password) {
		return nil
	}
	if a.tooManyFailures(viewer) {
		return errTooManyFailures
	}
	for _, turn := range []chan struct{}{a.comparison, all.comparisons} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if a.tooManyFailures(viewer) { // other failures may have been counted during the wait
		return errTooManyFailures
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil {
		all.accepted.Add(hash, password)
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures[viewer]++
	a.failureSum++
	return errWrongPassword
}

// tooManyFailures reports whether the viewer, or its gateway, has reached the limit of wrong
// passwords in the current window.
func (a *gatewayAdmission) tooManyFailures(viewer string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.windowStart) > failureWindow {
		a.windowStart, a.failureSum = now, 0
		clear(a.failures)
	}
	return a.failures[viewer] >= maxViewerFailures || a.failureSum >= maxGatewayFailures
}
