package gatewayapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestThumbnails checks that concurrent requests make a thumbnail, or an error, only once, and
// that an unused entry is removed.
func TestThumbnails(t *testing.T) {
	var made atomic.Int32
	x := NewThumbnails(func(_ context.Context, channel string) (Thumbnail, error) {
		made.Add(1)
		if channel == "dark" {
			return Thumbnail{}, errors.New("not on air")
		}
		return Thumbnail{JPEG: []byte(channel)}, nil
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if p, err := x.Of(t.Context(), "a"); err != nil || string(p.JPEG) != "a" {
				t.Errorf("%q, %v", p.JPEG, err)
			}
			if _, err := x.Of(t.Context(), "dark"); err == nil {
				t.Error("there is one of a channel that is not on air")
			}
		})
	}
	wg.Wait()
	if n := made.Load(); n != 2 {
		t.Errorf("%d were made, want 2", n)
	}
	x.cached["a"].madeAt = time.Now().Add(-ThumbnailAge)
	if _, err := x.Of(t.Context(), "a"); err != nil || made.Load() != 3 {
		t.Errorf("an old one is not made again: %v, %d", err, made.Load())
	}
	if x.entry("b", time.Now().Add(2*thumbnailTTL)); len(x.cached) != 1 {
		t.Errorf("%d are kept that nobody wants", len(x.cached)-1)
	}
}
