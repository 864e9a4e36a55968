package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/store"
)

// Keys in the store.
const (
	keys       = "handover/"
	keyClass   = keys + "classes/"
	keyPool    = keys + "pools/"
	keyDevice  = keys + "devices/"
	keyGuest   = keys + "guests/" // devices that nobody declared
	keyLease   = keys + "leases/"
	keyDecline = keys + "declined/"
)

// storeTimeout bounds each write.
const storeTimeout = 5 * time.Second

// put is the operation that stores v.
func put(key string, v any) (store.Op, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return store.Op{}, fmt.Errorf("encode %s: %w", key, err)
	}
	return store.OpPut(key, b), nil
}

func (r *Registry) put(ctx context.Context, key string, v any) error {
	op, err := put(key, v)
	if err != nil {
		return err
	}
	return r.apply(ctx, op)
}

func (r *Registry) delete(ctx context.Context, key string) error {
	return r.apply(ctx, store.OpDelete(key))
}

// apply writes to the store, all or nothing, within a bounded time. No lock but
// admin and those of records is held.
func (r *Registry) apply(ctx context.Context, ops ...store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if len(ops) == 1 && !ops[0].Delete {
		return r.st.Put(ctx, ops[0].Key, ops[0].Value)
	}
	return r.st.Apply(ctx, ops...)
}
