package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// GetJSON reads the value of the key into a T.
func GetJSON[T any](ctx context.Context, s Store, key string) (T, error) {
	var v T
	entry, err := s.Get(ctx, key)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(entry.Value, &v); err != nil {
		return v, fmt.Errorf("store: value of %q is not readable as %T: %w", key, v, err)
	}
	return v, nil
}

// PutJSON stores v under the key.
func PutJSON(ctx context.Context, s Store, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("store: encode value of %q: %w", key, err)
	}
	return s.Put(ctx, key, b)
}

// ListJSON reads all values below the prefix. The map's keys are the entries' keys without the
// prefix.
func ListJSON[T any](ctx context.Context, s Store, prefix string) (map[string]T, error) {
	entries, err := s.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	out := make(map[string]T, len(entries))
	for _, e := range entries {
		var v T
		if err := json.Unmarshal(e.Value, &v); err != nil {
			return nil, fmt.Errorf("store: value of %q is not readable as %T: %w", e.Key, v, err)
		}
		out[strings.TrimPrefix(e.Key, prefix)] = v
	}
	return out, nil
}
