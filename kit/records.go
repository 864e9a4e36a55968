package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/sluice-net/sluice/store"
)

// Records are the stored records from which a service finds its rules again after a restart, one
// for each name. The service can make each record anew from the state of the network. So a lost
// record costs only a new decision, and a record that cannot be used is deleted. The rules of a
// deleted record are removed from the switches, because nobody declares them.
type Records[T any] struct {
	Store store.Store
	// Prefix begins the keys in the store. A record's name follows.
	Prefix string
	// Plural names the records in log lines and errors, like "critical flows".
	Plural string
	Log    *slog.Logger
	// MaxItems bounds the records; zero means that there is no bound.
	MaxItems int
}

// Load calls use for each record, by name. It deletes the records that cannot be decoded, those
// that use refuses with an error, and those beyond MaxItems, and logs one warning about all of
// them. It returns an error if the store cannot be read.
func (r Records[T]) Load(ctx context.Context, use func(name string, v T) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	entries, err := r.Store.List(ctx, r.Prefix)
	if err != nil {
		return fmt.Errorf("read the %s: %w", r.Plural, err)
	}
	var unusable []store.Op
	var first error
	used := 0
	for _, e := range entries {
		var v T
		err := json.Unmarshal(e.Value, &v)
		if err == nil && r.MaxItems > 0 && used == r.MaxItems {
			err = fmt.Errorf("%w (%d)", ErrFull, r.MaxItems)
		}
		if err == nil {
			err = use(e.Key[len(r.Prefix):], v)
		}
		if err == nil {
			used++
			continue
		}
		if unusable = append(unusable, store.OpDelete(e.Key)); first == nil {
			first = fmt.Errorf("%s: %w", e.Key, err)
		}
	}
	if len(unusable) == 0 {
		return nil
	}
	r.Log.Warn("stored "+r.Plural+" cannot be used and are deleted", "number", len(unusable), "first", first)
	for some := range slices.Chunk(unusable, maxOps) {
		if err := r.Store.Apply(ctx, some...); err != nil {
			r.Log.Warn("unusable "+r.Plural+" stay stored until the next start", "error", err)
			break
		}
	}
	return nil
}

// Put stores the record of a name.
func (r Records[T]) Put(ctx context.Context, name string, v T) error {
	return store.PutJSON(ctx, r.Store, r.Prefix+name, v)
}

// Delete deletes the record of a name, if there is one.
func (r Records[T]) Delete(ctx context.Context, name string) error {
	if err := r.Store.Delete(ctx, r.Prefix+name); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}
