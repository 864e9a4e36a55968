package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/store"
)

const (
	treePrefix = Name + "/trees/"
	// storeEvery is how often trees are stored that could not be, storeDebounce how long
	// changes of trees are collected, storeTimeout how long one access may take.
	storeEvery    = 5 * time.Second
	storeDebounce = 200 * time.Millisecond
	storeTimeout  = 5 * time.Second
	// storeAtOnce is how many operations a store takes at once.
	storeAtOnce = 128
)

// load reads which trees there were before. What cannot be read is led anew.
func (w *ways) load(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	all, err := w.Store.List(ctx, treePrefix)
	if err != nil {
		w.Log.Error("the trees of before cannot be read: channels are led anew", "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range all {
		var t tree.Tree
		if err := json.Unmarshal(x.Value, &t); err != nil {
			w.Log.Error("a tree of before cannot be read: the channel is led anew", "key", x.Key, "error", err)
		}
		w.saved[x.Key[len(treePrefix):]] = t
	}
}

// keep stores trees that have changed, until ctx ends: the next controller begins with
// them, and finds the switches as they are to be.
func (w *ways) keep(ctx context.Context) {
	select {
	case <-w.started:
		w.storing.Run(ctx, storeDebounce, storeEvery, w.store)
	case <-ctx.Done():
	}
}

// store stores what has changed, and removes what is no more.
func (w *ways) store(ctx context.Context) {
	w.mu.Lock()
	now, saved := map[string]tree.Tree{}, maps.Clone(w.saved)
	for channel, l := range w.lines {
		if len(l.applied.Edges) > 0 {
			now[channel] = l.applied
		}
	}
	w.mu.Unlock()
	var ops []store.Op
	for channel, t := range now {
		if was, is := saved[channel]; is && was.Equal(t) {
			continue
		}
		if b, err := json.Marshal(t); err == nil {
			ops = append(ops, store.OpPut(treePrefix+channel, b))
		}
	}
	for channel := range saved {
		if _, is := now[channel]; !is {
			ops = append(ops, store.OpDelete(treePrefix+channel))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for some := range slices.Chunk(ops, storeAtOnce) {
		if err := w.Store.Apply(ctx, some...); err != nil {
			w.strange.Warn(w.Log, "trees cannot be stored; it is tried again", "error", err)
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saved = now
}

// restore makes the tree of before that of a channel.
func (w *ways) restore(c *Channel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, is := w.saved[c.Name]; is {
		w.line(c.Name).applied = t
		w.book.Restore(c.Name, uint64(c.BitRate), t)
	}
}

// unknown says which link of the trees of before is not there yet; empty if all are.
func (w *ways) unknown() string {
	top := w.Network.Topology()
	w.mu.Lock()
	defer w.mu.Unlock()
	for channel, l := range w.lines {
		for _, e := range l.applied.Edges {
			if !e.In(top) {
				return fmt.Sprintf("the link %v of channel %s", e.From, channel)
			}
		}
	}
	return ""
}
