package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/store"
)

// flowRecord is the stored form of a flow.
type flowRecord[T any] struct {
	From  network.PortRef `json:"from"`
	Value T               `json:"value"`
}

// load reads the stored flows. It deletes those that cannot be read and those beyond the bound;
// their rules are removed when the rules of the others are known.
func (x *Flows[T]) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	entries, err := x.Store.List(ctx, x.Prefix)
	if err != nil {
		return fmt.Errorf("read the flows of %s: %w", x.Name(), err)
	}
	for _, e := range entries {
		if err := x.restoreFlow(e); err != nil {
			x.Log.Warn("a stored flow is deleted", "service", x.Name(), "key", e.Key, "error", err)
			if err := x.Store.Delete(ctx, e.Key); err != nil && !errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("delete a flow of %s that cannot be used: %w", x.Name(), err)
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running, x.restore = true, time.Now().Add(restoreFor)
	return nil
}

// restoreFlow adds a flow from the store. Packets of it may have arrived before.
func (x *Flows[T]) restoreFlow(e store.Entry) error {
	var r flowRecord[T]
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return err
	}
	name := e.Key[len(x.Prefix):]
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.flows[name]
	if f == nil {
		if len(x.flows) >= x.MaxFlows {
			return fmt.Errorf("%d flows: %w", len(x.flows), ErrFull)
		}
		f = &flow[T]{name: name, from: r.From}
		x.flows[name] = f
		x.opened.Add(r.From, 1)
	}
	f.value, f.saved, f.restored = r.Value, e.Value, true
	x.restored++
	return nil
}

// save stores a flow if its record has changed.
func (x *Flows[T]) save(ctx context.Context, f *flow[T], v T) {
	b, err := json.Marshal(flowRecord[T]{f.from, v})
	if err == nil && !bytes.Equal(b, f.saved) {
		if err = x.Store.Put(ctx, x.Prefix+f.name, b); err == nil {
			f.saved = b
		}
	}
	if err != nil {
		x.limiter.Warn(x.Log, "a flow could not be stored; a restart would end it", "service", x.Name(), "flow", f.name, "error", err)
	}
}

// deleteRecord deletes a flow from the store.
func (x *Flows[T]) deleteRecord(ctx context.Context, f *flow[T]) error {
	if f.saved == nil {
		return nil
	}
	if err := x.Store.Delete(ctx, x.Prefix+f.name); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	f.saved = nil
	return nil
}
