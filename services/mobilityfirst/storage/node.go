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
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// DefaultSize is the default of Options.Size in bytes.
	DefaultSize = 10 << 30
	// DefaultKeep is the default of Options.Keep.
	DefaultKeep = 24 * time.Hour
	// MinSize is the minimum of Options.Size.
	MinSize = 256 << 20
	// refusalLifetime is how long chunks of a sender are refused after one of them was refused,
	// unless the refused chunk comes again. Until the host learns of the first refusal, it delivers
	// chunks that it has already read, which takes at most this long. maxRefused limits the senders
	// for which a refusal is remembered.
	refusalLifetime, maxRefused = time.Second, 4096
	// sweepInterval is the time between two removals of expired chunks.
	sweepInterval = time.Minute
)

// Options configures a Node.
type Options struct {
	// Host is the host at which the node's name is attached.
	Host *hostapi.Client
	// Dir is the folder of the chunks.
	Dir string
	// Size limits the bytes of stored chunks. One sender may use an eighth of what others leave, and
	// all senders at one place together half of what those at other places leave. A small chunk
	// counts as 32 KiB. Zero selects DefaultSize.
	Size int64
	// Known lists senders for which half of Size is kept free: all other senders together may use
	// the other half. The limit of a place does not apply to known senders. If Known is empty, all
	// senders are alike.
	Known []frame.GUID
	// Keep is how long the node keeps a chunk at most, whatever its sender asks for. Zero selects
	// DefaultKeep.
	Keep time.Duration
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Node stores chunks and delivers them.
type Node struct {
	Options
	store         *Store
	warnLimit     lograte.Limit // for log lines that others can cause
	diskWarnLimit lograte.Limit // for log lines about the disk
	couriers
	refused  map[frame.GUID]refusal // by sender; only Run uses it
	sweeping sync.Mutex

	mu       sync.Mutex
	byName   map[frame.GUID]*destination
	kept     map[custody.ID]struct{} // the stored chunks
	storing  map[custody.ID]struct{} // the chunks that are being stored
	room     room
	counters Counters
}

// Counters counts what a node has done since its start, and describes what it holds.
type Counters struct {
	// Kept counts the chunks that the node has taken over, HandedOn those that their destinations
	// have taken over, and Lost those that have expired or were damaged on the disk. Refused counts
	// refusals: there was no room, the chunk was not valid, the disk did not take it, or a chunk
	// before it was refused.
	Kept, HandedOn, Refused, Lost uint64
	// Chunks is the number of chunks now, Destinations the number of their destinations, and Bytes
	// the part of Options.Size that the chunks use.
	Chunks, Destinations int
	Bytes                int64
}

// New returns a node with the chunks in its folder. Run closes it. The error wraps
// folderlock.ErrBusy.
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
	if o.Size < MinSize || o.Keep < 0 || o.Keep > custody.MaxKept {
		return nil, fmt.Errorf("storage of %d bytes for %v: want at least %d, for up to %v", o.Size, o.Keep, MinSize, custody.MaxKept)
	}
	store, all, err := Open(o.Dir)
	if err != nil {
		return nil, err
	}
	n := &Node{Options: o, store: store, byName: map[frame.GUID]*destination{}, kept: map[custody.ID]struct{}{}, storing: map[custody.ID]struct{}{}, refused: map[frame.GUID]refusal{}, room: newRoom(o.Size, o.Known)}
	n.couriers.init()
	for _, k := range sortKept(all) {
		if n.isKept(k) { // an earlier process could not remove it before it came from another place
			if err := store.Remove(k.ID, k.Place); err != nil {
				return nil, errors.Join(err, store.Close())
			}
			continue
		}
		n.room.charge(&k)
		n.add(k)
	}
	if room := n.Report().Storage.Size; room < n.Size {
		n.Log.Warn("the disk has less room than the node may use, and refuses chunks when it is full", "dir", n.Dir, "room", units.FormatAmount(uint64(room)), "size", units.FormatSize(n.Size))
	}
	return n, nil
}

// sortKept sorts stored chunks for delivery: those of one flow by their numbers, and flows by their
// first chunk.
func sortKept(all []Kept) []Kept {
	began := map[custody.ID]time.Time{}
	for _, k := range all {
		if t, ok := began[k.ID.InFlow()]; !ok || k.Since.Before(t) {
			began[k.ID.InFlow()] = k.Since
		}
	}
	slices.SortFunc(all, func(a, b Kept) int {
		f, g := a.ID.InFlow(), b.ID.InFlow()
		return cmp.Or(began[f].Compare(began[g]), bytes.Compare(a.Source[:], b.Source[:]), cmp.Compare(a.Flow, b.Flow), cmp.Compare(a.Number, b.Number))
	})
	return all
}

// Counters returns the current counters.
func (n *Node) Counters() Counters {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.counters
	c.Chunks, c.Destinations, c.Bytes = len(n.kept), len(n.byName), n.room.used
	return c
}

// Close closes the folder and the host of a node that does not run.
func (n *Node) Close() error { return errors.Join(n.store.Close(), n.Host.Close()) }

// Run runs the node until ctx ends or the host fails, which it returns as an error. It closes the
// host.
func (n *Node) Run(ctx context.Context) error {
	work := tasks.New()
	defer func() { _ = n.store.Close() }()
	defer work.Stop()
	defer func() { _ = n.Host.Close() }() // this ends all waiting calls
	came, ended := make(chan hostapi.Chunk, hostapi.MaxAhead), make(chan error, 1)
	work.Start(func(ctx context.Context) { ended <- n.receive(ctx, came) })
	for i := range n.queues {
		work.Start(func(ctx context.Context) { n.dispatch(ctx, &n.queues[i], work) })
	}
	n.mu.Lock()
	for _, d := range n.byName {
		n.schedule(d)
	}
	n.mu.Unlock()
	sweep := time.NewTicker(sweepInterval)
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
			if err := n.takeCustody(batch, time.Now()); err != nil {
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
		came <- x // the channel has room for all that are not taken over
	}
}
