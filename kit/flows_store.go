package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/network"
)

// flowRecord is the stored form of a flow.
type flowRecord[T any] struct {
	From  network.PortRef `json:"from"`
	Value T               `json:"value"`
}

// records returns the stored form of the flows.
func (x *Flows[T]) records() Records[flowRecord[T]] {
	return Records[flowRecord[T]]{Store: x.Store, Prefix: x.Prefix, Plural: "flows of " + x.Name(), Log: x.Log, MaxItems: x.MaxFlows}
}

// load reads the stored flows.
func (x *Flows[T]) load(ctx context.Context) error {
	var names []string
	if x.Store != nil {
		if err := x.records().Load(ctx, func(name string, r flowRecord[T]) error {
			names = append(names, name)
			return x.restoreFlow(name, r)
		}); err != nil {
			return err
		}
	}
	x.adoption.begin(names)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running, x.restore = true, time.Now().Add(restoreFor)
	return nil
}

// restoreFlow adds a flow from the store, or gives the stored value to a flow that a packet has
// begun meanwhile.
func (x *Flows[T]) restoreFlow(name string, r flowRecord[T]) (err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.flows[name]
	if f == nil {
		if len(x.flows) >= x.MaxFlows {
			return fmt.Errorf("%d flows: %w", len(x.flows), ErrFull)
		}
		f = x.add(name, r.From, r.Value)
	}
	f.value = r.Value
	f.saved, err = json.Marshal(r)
	return err
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
		x.limiter.Warn(x.Log, "a flow could not be stored; a restart would end it", "handler", x.Name(), "flow", f.name, "error", err)
	}
}

// deleteRecord deletes a flow from the store.
func (x *Flows[T]) deleteRecord(ctx context.Context, f *flow[T]) error {
	if f.saved == nil {
		return nil
	}
	if err := x.records().Delete(ctx, f.name); err != nil {
		return err
	}
	f.saved = nil
	return nil
}
