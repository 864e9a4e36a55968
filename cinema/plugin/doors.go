package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
)

const (
	// maxAtOnce bounds the changes of one gateway that are under way.
	maxAtOnce = 256
	// maxComparisons bounds how many passwords are compared at once: each takes a processor
	// for some ten milliseconds. A gateway has one of them at most.
	maxComparisons = 2
	// wrongMost is how many wrong passwords of one viewer are compared in wrongFor, and
	// wrongOfGateway of all viewers of a gateway; then no more are until that is over.
	wrongMost      = 5
	wrongOfGateway = 100
	wrongFor       = 10 * time.Second
)

var (
	errWrong    = errors.New("wrong password")
	errTooOften = fmt.Errorf("no more than %d wrong passwords of a viewer in %v: wait", wrongMost, wrongFor)
)

// doors are what each gateway may do at once, so that none is in the others' way.
type doors struct {
	comparing chan struct{}
	bursts    chan struct{}
	right     *gatewayapi.RightPasswords

	mu  sync.Mutex
	all map[string]*door
}

func newDoors() *doors {
	return &doors{
		comparing: make(chan struct{}, maxComparisons), bursts: make(chan struct{}, maxBursts),
		right: gatewayapi.NewRightPasswords(), all: map[string]*door{},
	}
}

// of is that of a gateway that is known.
func (d *doors) of(gateway string) *door {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.all[gateway]
	if x == nil {
		x = &door{places: make(chan struct{}, maxAtOnce), turn: make(chan struct{}, 1), wrong: map[string]int{}}
		d.all[gateway] = x
	}
	return x
}

func (d *doors) forget(gateway string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, gateway)
}

// burst says whether one more may be asked for; then burstDone gives its place back.
func (d *doors) burst() bool {
	select {
	case d.bursts <- struct{}{}:
		return true
	default:
		return false
	}
}

func (d *doors) burstDone() { <-d.bursts }

// door is what one gateway does now.
type door struct {
	places chan struct{}
	turn   chan struct{} // of who compares

	mu    sync.Mutex
	since time.Time      // when wrong was begun
	wrong map[string]int // by viewer
	sum   int
}

// enter takes a place for a change, if there is one; leave gives it back.
func (d *door) enter() bool {
	select {
	case d.places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (d *door) leave() { <-d.places }

// password says whether a viewer's password is right for a hash: nil, errWrong, errTooOften,
// or why that was not found out in time.
func (d *door) password(ctx context.Context, all *doors, viewer, hash, password string) error {
	if password == "" {
		return errWrong // without a comparison: no channel has it
	}
	if all.right.Known(hash, password) {
		return nil
	}
	if d.tooOften(viewer) {
		return errTooOften
	}
	for _, turn := range []chan struct{}{d.turn, all.comparing} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if d.tooOften(viewer) { // it may have become so while this waited
		return errTooOften
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil {
		all.right.Remember(hash, password)
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wrong[viewer]++
	d.sum++
	return errWrong
}

// tooOften says whether a viewer, or its gateway, has been wrong too often of late.
func (d *door) tooOften(viewer string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.since) > wrongFor {
		d.since, d.sum = now, 0
		clear(d.wrong)
	}
	return d.wrong[viewer] >= wrongMost || d.sum >= wrongOfGateway
}
