package storage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// DefaultSize is the value of Options.Size, in bytes, where it is zero.
	DefaultSize = 10 << 30
	// DefaultKeep is the value of Options.Keep where it is zero.
	DefaultKeep = 24 * time.Hour
	// LeastSize is what Options.Size is at least.
	LeastSize = 256 << 20
	// leastCharge is what a chunk counts at least, of Options.Size: that is what a file costs that may be the only
	// one in its folder, in memory too.
	leastCharge = 32 << 10
	// One name has an eighth at most of what others leave.
	shareOfOne = 8
	// afterRefused is for how long chunks are refused behind one of the same sender, if that does not come again. So
	// long at most the host brings those that it has read before it hears of the first. maxRefused is of how many
	// senders that is remembered.
	afterRefused, maxRefused = time.Second, 4096
	// sweepEvery is how often it is looked what holds no more.
	sweepEvery = time.Minute
)

// Options are what a Node works with.
type Options struct {
	// Host is where its name is attached.
	Host *hostapi.Client
	// Dir is where it keeps chunks.
	Dir string
	// Size is how many bytes of chunks it keeps at most: for one name that sends an eighth of what others leave. A
	// small chunk counts 32 KiB. Zero for DefaultSize.
	Size int64
	// Keep is how long it keeps a chunk at most, whatever its sender says. Zero for DefaultKeep.
	Keep time.Duration
	// Log is where it says what fails; nil for nowhere.
	Log *slog.Logger
}

// Node keeps chunks, and hands them on.
type Node struct {
	Options
	store   *Store
	strange lograte.Limit // lines that others can cause
	trouble lograte.Limit // those of the disk
	couriers
	refused  map[frame.GUID]refusal // by sender; Run's alone
	sweeping sync.Mutex

	mu       sync.Mutex
	of       map[frame.GUID]*destination
	have     map[custody.ID]struct{} // all that it has
	coming   map[custody.ID]struct{} // what it is about to have
	by       map[frame.GUID]int64    // what each sender has of Size
	used     int64                   // of Size, by all
	counters Counters
}

// Counters are what a node has done since it was made, and what it has.
type Counters struct {
	// Kept are chunks that were taken into custody, HandedOn those that their destinations have taken, and Lost
	// those whose time was over, or that the disk could not give back as they were. Refused is how often one
	// was not kept: there was no room, it was none, the disk did not take it, or it was behind one of these.
	Kept, HandedOn, Refused, Lost uint64
	// Chunks are how many it has now, Destinations for how many names, Bytes what they count of Options.Size.
	Chunks, Destinations int
	Bytes                int64
}

// New returns a node with what is in its folder. The error wraps folderlock.ErrBusy. It is closed by Run.
func New(o Options) (*Node, error) {
	if o.Size == 0 {
		o.Size = DefaultSize
	}
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Size < LeastSize || o.Keep < 0 || o.Keep > custody.MaxKept {
		return nil, fmt.Errorf("storage of %d bytes for %v: want at least %d, for up to %v", o.Size, o.Keep, LeastSize, custody.MaxKept)
	}
	store, all, err := Open(o.Dir)
	if err != nil {
		return nil, err
	}
	n := &Node{Options: o, store: store, of: map[frame.GUID]*destination{}, have: map[custody.ID]struct{}{}, coming: map[custody.ID]struct{}{}, refused: map[frame.GUID]refusal{}, by: map[frame.GUID]int64{}}
	n.couriers.init()
	for _, k := range sorted(all) {
		n.by[k.Source] += charge(k.Size)
		n.used += charge(k.Size)
		n.add(k)
	}
	return n, nil
}

// sorted has chunks of before in order: those of one flow by their numbers, flows by which came first.
func sorted(all []Kept) []Kept {
	began := map[custody.ID]time.Time{}
	for _, k := range all {
		if t, is := began[k.ID.InFlow()]; !is || k.Since.Before(t) {
			began[k.ID.InFlow()] = k.Since
		}
	}
	slices.SortFunc(all, func(a, b Kept) int {
		f, g := a.ID.InFlow(), b.ID.InFlow()
		return cmp.Or(began[f].Compare(began[g]), bytes.Compare(a.Source[:], b.Source[:]), cmp.Compare(a.Flow, b.Flow), cmp.Compare(a.Number, b.Number))
	})
	return all
}

// Counters is what it has done until now.
func (n *Node) Counters() Counters {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.counters
	c.Chunks, c.Destinations, c.Bytes = len(n.have), len(n.of), n.used
	return c
}

// Close gives the folder and the host back of a node that is not run.
func (n *Node) Close() error { return errors.Join(n.store.Close(), n.Host.Close()) }

// Run works until ctx ends, or the host does: then the error says so. It closes the host.
func (n *Node) Run(ctx context.Context) error {
	work := tasks.New()
	defer func() { _ = n.store.Close() }()
	defer work.Stop()
	defer func() { _ = n.Host.Close() }() // ends what waits
	came, ended := make(chan hostapi.Chunk, hostapi.MaxAhead), make(chan error, 1)
	work.Start(func(ctx context.Context) { ended <- n.receive(ctx, came) })
	for i := range n.queues {
		work.Start(func(ctx context.Context) { n.dispatch(ctx, &n.queues[i], work) })
	}
	n.mu.Lock()
	for _, d := range n.of {
		n.rouse(d)
	}
	n.mu.Unlock()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case now := <-sweep.C:
			n.forgetRefused(now)
			work.Start(func(context.Context) { n.sweep(now) })
		case x := <-came:
			batch := []hostapi.Chunk{x}
			for len(came) > 0 {
				batch = append(batch, <-came)
			}
			if err := n.keep(batch, time.Now()); err != nil {
				return err
			}
		}
	}
}

func (n *Node) receive(ctx context.Context, came chan<- hostapi.Chunk) error {
	for {
		x, err := n.Host.Receive(ctx)
		if err != nil {
			return err
		}
		came <- x // there is room for all that are not taken
	}
}
