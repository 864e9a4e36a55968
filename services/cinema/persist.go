package cinema

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/cinema/tree"
	"github.com/sluice-net/sluice/store"
)

const (
	treePrefix = Name + "/trees/"
	// storeRetry is the time after which trees that could not be stored are stored again,
	// storeDebounce how long changes of trees are collected, and storeTimeout bounds one access
	// to the store.
	storeRetry    = 5 * time.Second
	storeDebounce = 200 * time.Millisecond
	storeTimeout  = 5 * time.Second
	// maxStoreOps is how many operations a store accepts in one transaction.
	maxStoreOps = 128
)

// loadTrees reads the trees from the store. A channel whose tree cannot be read gets a new one.
func (tm *treeManager) loadTrees(ctx context.Context) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	records := kit.Records[tree.Tree]{Store: tm.Store, Prefix: treePrefix, Plural: "trees", Log: tm.Log}
	if err := records.Load(ctx, func(channel string, t tree.Tree) error { tm.stored[channel] = t; return nil }); err != nil {
		tm.Log.Error("channels get new trees", "error", err)
	}
}

// persist stores changed trees until ctx ends. A restarted controller begins with them, so that
// the switches' rules are what it plans.
func (tm *treeManager) persist(ctx context.Context) {
	select {
	case <-tm.ready:
		tm.storeLoop.Run(ctx, storeDebounce, storeRetry, tm.storeChanges)
	case <-ctx.Done():
	}
}

// storeChanges stores the trees that have changed, and deletes those of channels without one.
func (tm *treeManager) storeChanges(ctx context.Context) {
	tm.mu.Lock()
	now, saved := map[string]tree.Tree{}, maps.Clone(tm.stored)
	for channel, cs := range tm.states {
		if len(cs.applied.Edges) > 0 {
			now[channel] = cs.applied
		}
	}
	tm.mu.Unlock()
	var ops []store.Op
	for channel, t := range now {
		if prev, ok := saved[channel]; ok && prev.Equal(t) {
			continue
		}
		if b, err := json.Marshal(t); err == nil {
			ops = append(ops, store.OpPut(treePrefix+channel, b))
		}
	}
	for channel := range saved {
		if _, ok := now[channel]; !ok {
			ops = append(ops, store.OpDelete(treePrefix+channel))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for some := range slices.Chunk(ops, maxStoreOps) {
		if err := tm.Store.Apply(ctx, some...); err != nil {
			tm.warnLimiter.Warn(tm.Log, "cannot store trees; will try again", "error", err)
			return
		}
	}
	tm.mu.Lock()
	defer tm.mu.Unlock()
	tm.stored = now
}

// restore gives a channel the tree that was stored.
func (tm *treeManager) restore(c *Channel) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	if t, ok := tm.stored[c.Name]; ok {
		tm.state(c.Name).applied = t
		tm.reservations.Restore(c.Name, uint64(c.BitRate), t)
	}
}

// missingLink returns the first link of the restored trees that the topology does not have yet,
// or "".
func (tm *treeManager) missingLink() string {
	top := tm.Network.Topology()
	tm.mu.Lock()
	defer tm.mu.Unlock()
	for channel, cs := range tm.states {
		for _, e := range cs.applied.Edges {
			if !e.InTopology(top) {
				return fmt.Sprintf("the link %v of channel %s", e.From, channel)
			}
		}
	}
	return ""
}
