package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// minKillWrites is the number of writes that must be acknowledged before each kill. A kill without
// acknowledged writes would show nothing.
const minKillWrites = 100

// nameWriter writes records to a name service, as *gnrs.Client does.
type nameWriter interface {
	Write(context.Context, *record.Record) error
}

// acknowledged holds the writes that a name service has acknowledged.
type acknowledged struct {
	mu      sync.Mutex
	writes  int
	numbers map[int]uint64 // number of the last record, by name
	err     error          // error of the last write that was not acknowledged
}

// add adds the result of a write.
func (a *acknowledged) add(name int, number uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.err = err
		return
	}
	a.writes++
	a.numbers[name] = number
}

// enough returns an error if fewer than minKillWrites writes are acknowledged.
func (a *acknowledged) enough() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writes >= minKillWrites {
		return nil
	}
	return fmt.Errorf("%d writes are acknowledged, want %d: %w", a.writes, minKillWrites, a.err)
}

// kills kills programs again and again while names are written, and claims that no acknowledged
// write is lost. kill kills the programs. restart starts them again and returns the number of names
// for which the service has an older record than it has acknowledged.
func (rig *namesRig) kills(ctx context.Context, r *Result, claim string, times int, kill func(), restart func(context.Context, map[int]uint64) (lost int, err error)) error {
	lost, writes, fewest := 0, 0, math.MaxInt
	for range times {
		a, err := rig.writeUntilKilled(ctx, kill)
		if err != nil {
			return err
		}
		n, err := restart(ctx, a.numbers)
		if err != nil {
			return err
		}
		lost, writes, fewest = lost+n, writes+a.writes, min(fewest, a.writes)
	}
	r.Claim(lost == 0 && fewest >= minKillWrites, claim, "%d names are older than acknowledged, after %d acknowledged writes and %d kills; before each kill at least %d writes were acknowledged", lost, writes, times, fewest)
	return nil
}

// writeUntilKilled writes names, calls kill while it does, and returns the acknowledged writes.
func (rig *namesRig) writeUntilKilled(ctx context.Context, kill func()) (*acknowledged, error) {
	c, err := gnrs.Dial(rig.at)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return rig.writeTo(ctx, c, kill)
}

// writeTo does what writeUntilKilled does, to a given service. Its error says that too few writes
// are acknowledged for a kill.
func (rig *namesRig) writeTo(ctx context.Context, to nameWriter, kill func()) (*acknowledged, error) {
	writing, cancel := context.WithCancel(ctx)
	a := &acknowledged{numbers: map[int]uint64{}, err: gnrs.ErrNoAnswer}
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range min(len(rig.names), 2*nameWindow) {
		all.Go(func() {
			for writing.Err() == nil { // a write that fails is followed by others until the kill
				now := time.Now()
				r, err := record.Sign(rig.key(i), uint64(now.UnixNano()), now.Add(time.Hour), place(i))
				if err == nil {
					err = to.Write(writing, r)
				}
				a.add(i, uint64(now.UnixNano()), err)
			}
		})
	}
	err := testbed.Poll(ctx, "writes before a kill", a.enough)
	if err == nil {
		err = tasks.Sleep(ctx, rand.N(250*time.Millisecond)) // so that kills come at all times of a write
	}
	kill()
	return a, err
}

// missing counts the names of which the service has no record, or an older one than it has
// acknowledged.
func (rig *namesRig) missing(ctx context.Context, numbers map[int]uint64) (n int, err error) {
	c, err := gnrs.Dial(rig.at)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for i, number := range numbers {
		r, err := c.Lookup(ctx, rig.names[i])
		if refused, ok := errors.AsType[*gnrs.RefusedError](err); ok && refused.Code == gnrs.NotFound {
			n++
			continue
		}
		if err != nil {
			return 0, err
		}
		if r.Number < number {
			n++
		}
	}
	return n, nil
}

// restart starts the service after a kill, and returns the number of names that are missing.
func (rig *namesRig) restart(ctx context.Context, numbers map[int]uint64) (lost int, err error) {
	if err := rig.start(ctx); err != nil {
		return 0, err
	}
	return rig.missing(ctx, numbers)
}
