package gatewayapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// However many ask at once, a thumbnail is made once, and so is the finding that there is none;
// what nobody asks for is forgotten.
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
	x.all["a"].at = time.Now().Add(-ThumbnailAge)
	if _, err := x.Of(t.Context(), "a"); err != nil || made.Load() != 3 {
		t.Errorf("an old one is not made again: %v, %d", err, made.Load())
	}
	if x.kept("b", time.Now().Add(2*thumbnailKept)); len(x.all) != 1 {
		t.Errorf("%d are kept that nobody wants", len(x.all)-1)
	}
}
