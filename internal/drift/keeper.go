package drift

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/tasks"
)

// Thing is something that a program has declared on this machine.
type Thing struct {
	// Name identifies the thing in logs, metrics and the status.
	Name string
	// Restore compares the thing with its declaration, and restores what differs. It returns the
	// number of differences that it has found. If it also returns an error, they were not restored.
	Restore func(context.Context) (differences int, err error)
	// After lists the kernel's notifications after which the thing is compared.
	After []Notification
	// Interval is the interval of comparisons without notifications. Zero means DefaultInterval.
	Interval time.Duration
}

const (
	// DefaultInterval is the interval of comparisons of a thing whose changes the kernel reports.
	DefaultInterval = 30 * time.Second
	// PollInterval is the interval for a thing whose changes the kernel does not report, and which
	// costs little to read, such as a setting in /proc/sys.
	PollInterval = 500 * time.Millisecond

	// burst and perSecond bound the comparisons that notifications cause.
	burst     = 5
	perSecond = 2
	// restoreTimeout bounds one comparison.
	restoreTimeout = 10 * time.Second
)

// Keeper compares things with their declarations, and restores them.
type Keeper struct {
	things  []Thing
	due     []time.Time // of the next comparison without a notification, by thing
	counts  *Counts
	sources map[int]source // by protocol of netlink
}

// Open returns a Keeper of things, which must have been set up. It subscribes to notifications in
// the network namespace of the calling thread. Run compares the things, or the caller calls Close.
func Open(counts *Counts, things ...Thing) (*Keeper, error) {
	k := &Keeper{things: things, due: make([]time.Time, len(things)), counts: counts, sources: map[int]source{}}
	groups := map[int][]uint32{}
	for _, t := range things {
		for _, n := range t.After {
			if !slices.Contains(groups[n.protocol], n.group) {
				groups[n.protocol] = append(groups[n.protocol], n.group)
			}
		}
	}
	for protocol, list := range groups {
		s, err := subscribe(protocol, list)
		if err != nil {
			return nil, errors.Join(err, k.Close())
		}
		k.sources[protocol] = s
	}
	return k, nil
}

// Close ends the subscriptions. Run does so, too.
func (k *Keeper) Close() (err error) {
	for _, s := range k.sources {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Run compares the things until ctx ends, and then returns nil. All comparisons have ended when it
// returns.
func (k *Keeper) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var readers sync.WaitGroup
	changed, failed := make(chan int), make(chan error, len(k.sources)) // changed has protocols
	for protocol, s := range k.sources {
		readers.Go(func() {
			err := follow(ctx, s, func() { send(ctx, changed, protocol) })
			if ctx.Err() == nil {
				failed <- fmt.Errorf("notifications of the kernel: %w", err)
				cancel()
			}
		})
	}
	k.loop(ctx, changed)
	err = k.Close()
	readers.Wait()
	select {
	case failure := <-failed:
		err = errors.Join(failure, err)
	default:
	}
	return err
}

func send(ctx context.Context, to chan<- int, protocol int) {
	select {
	case to <- protocol:
	case <-ctx.Done():
	}
}

// loop compares things when they are due, and after notifications, until ctx ends.
func (k *Keeper) loop(ctx context.Context, changed <-chan int) {
	now := time.Now()
	for i := range k.things {
		k.schedule(i, now)
	}
	for ctx.Err() == nil {
		timer := time.NewTimer(time.Until(k.nextDue()))
		select {
		case <-ctx.Done():
		case protocol := <-changed:
			k.compare(ctx, func(i int) bool { return k.things[i].concerns(protocol) })
		case now := <-timer.C:
			k.compare(ctx, func(i int) bool { return !k.due[i].After(now) })
		}
		timer.Stop()
	}
}

// concerns reports whether the thing is compared after notifications of a protocol of netlink.
func (t *Thing) concerns(protocol int) bool {
	return slices.ContainsFunc(t.After, func(n Notification) bool { return n.protocol == protocol })
}

// schedule sets the time of the next comparison of a thing without a notification.
func (k *Keeper) schedule(i int, now time.Time) {
	interval := k.things[i].Interval
	if interval == 0 {
		interval = DefaultInterval
	}
	k.due[i] = now.Add(interval)
}

// nextDue returns the earliest time of a comparison without a notification.
func (k *Keeper) nextDue() time.Time {
	next := time.Now().Add(DefaultInterval)
	for _, at := range k.due {
		if at.Before(next) {
			next = at
		}
	}
	return next
}

// compare compares the things for whose index which returns true, and restores them.
func (k *Keeper) compare(ctx context.Context, which func(i int) bool) {
	for i, t := range k.things {
		if !which(i) || ctx.Err() != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, restoreTimeout)
		differences, err := t.Restore(limited)
		cancel()
		if ctx.Err() != nil {
			return // the end has interrupted it
		}
		now := time.Now()
		k.counts.Record(t.Name, differences, err, now)
		k.schedule(i, now)
	}
}

// source is a subscription to notifications of one protocol of netlink.
type source interface {
	// await waits for a notification, and drain discards all that have come in.
	await() error
	drain() error
	Close() error
}

// follow calls changed after notifications, but no more often than burst and perSecond allow, until
// ctx ends or the source is closed. Notifications that come in meanwhile collect in the socket,
// whose buffer bounds them. One call stands for all of them, and for those that did not fit.
func follow(ctx context.Context, from source, changed func()) error {
	limiter := rate.NewLimiter(perSecond, burst)
	for {
		if err := from.await(); err != nil {
			return err
		}
		if err := tasks.Sleep(ctx, limiter.Reserve().Delay()); err != nil {
			return err
		}
		if err := from.drain(); err != nil {
			return err
		}
		changed()
	}
}
