package plugin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
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
	// keptRight bounds the right passwords that are remembered.
	keptRight = 1024
)

var (
	errWrong    = errors.New("wrong password")
	errTooOften = fmt.Errorf("no more than %d wrong passwords of a viewer in %v: wait", wrongMost, wrongFor)
)

// doors are what each gateway may do at once, so that none is in the others' way.
type doors struct {
	comparing chan struct{}
	bursts    chan struct{}
	secret    [sha256.Size]byte

	mu    sync.Mutex
	all   map[string]*door
	right map[[sha256.Size]byte]bool // what has been compared, and was right
}

func newDoors() *doors {
	d := &doors{comparing: make(chan struct{}, maxComparisons), bursts: make(chan struct{}, maxBursts), all: map[string]*door{}, right: map[[sha256.Size]byte]bool{}}
	_, _ = rand.Read(d.secret[:]) // never fails
	return d
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

// mark is what stands for a password that belongs to a hash, in this process alone.
func (d *doors) mark(hash, password string) (out [sha256.Size]byte) {
	m := hmac.New(sha256.New, d.secret[:])
	_, _ = fmt.Fprintf(m, "%d %s%s", len(hash), hash, password)
	m.Sum(out[:0])
	return out
}

func (d *doors) known(mark [sha256.Size]byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.right[mark]
}

func (d *doors) remember(mark [sha256.Size]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.right) >= keptRight {
		clear(d.right)
	}
	d.right[mark] = true
}

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
	mark := all.mark(hash, password)
	if all.known(mark) {
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
		all.remember(mark)
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
