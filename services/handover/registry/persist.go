package registry

import (
	"context"
	"encoding/json"
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

// put returns the operation that stores v as JSON. All values that are stored have a JSON form.
func put(key string, v any) store.Op {
	b, _ := json.Marshal(v)
	return store.OpPut(key, b)
}

// write writes to the store, all or nothing, within a bounded time. The caller holds no locks
// except admin and those of records.
func write(ctx context.Context, st store.Store, ops ...store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return st.Apply(ctx, ops...)
}
