package gatewayapi

import (
	"context"
	"sync"
	"time"
)

const (
	// MaxThumbnail is the maximum size of a thumbnail in bytes.
	MaxThumbnail = 32 << 10
	// ThumbnailAge is how long a thumbnail is used before another is made.
	ThumbnailAge = 5 * time.Second
	// thumbnailTimeout bounds one request for a thumbnail, and maxThumbnailRequests how many
	// run at the same time.
	thumbnailTimeout     = 3 * time.Second
	maxThumbnailRequests = 4
	// thumbnailTTL is how long a thumbnail that nobody requests is kept.
	thumbnailTTL = time.Minute
)

// Thumbnail is a small picture of a channel: a JPEG of at most 320x180 pixels and MaxThumbnail
// bytes.
type Thumbnail struct {
	At   time.Time `json:"at" doc:"When it was made"`
	JPEG []byte    `json:"jpeg" doc:"The picture, in base64"`
}

// Thumbnails caches thumbnails of channels, and the errors of failed requests for them. It requests a
// channel's thumbnail at most once per ThumbnailAge, and only on demand. It is safe for concurrent
// use. Create it with NewThumbnails.
type Thumbnails struct {
	get   func(ctx context.Context, channel string) (Thumbnail, error)
	slots chan struct{}

	mu     sync.Mutex
	cached map[string]*cachedThumbnail
}

type cachedThumbnail struct {
	busy      chan struct{} // holds one element while the entry is made or read
	madeAt    time.Time
	thumbnail Thumbnail
	err       error
	usedAt    time.Time // guarded by Thumbnails.mu
}

// NewThumbnails returns a cache that gets thumbnails by calling get.
func NewThumbnails(get func(ctx context.Context, channel string) (Thumbnail, error)) *Thumbnails {
	return &Thumbnails{get: get, slots: make(chan struct{}, maxThumbnailRequests), cached: map[string]*cachedThumbnail{}}
}

// Of returns the thumbnail of a channel. The caller has checked that the channel exists.
func (t *Thumbnails) Of(ctx context.Context, channel string) (Thumbnail, error) {
	k := t.entry(channel, time.Now())
	// Other callers want it too, so the caller's cancellation does not stop the request.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), thumbnailTimeout)
	defer cancel()
	for _, turn := range []chan struct{}{k.busy, t.slots} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-making.Done():
			return Thumbnail{}, context.Cause(making)
		}
		if turn == k.busy && time.Since(k.madeAt) < ThumbnailAge {
			return k.thumbnail, k.err
		}
	}
	k.thumbnail, k.err = t.get(making, channel)
	k.madeAt = time.Now()
	return k.thumbnail, k.err
}

// entry returns the cache entry of a channel. When it adds one, it removes those that were not
// used for thumbnailTTL.
func (t *Thumbnails) entry(channel string, now time.Time) *cachedThumbnail {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.cached[channel]
	if k == nil {
		for name, other := range t.cached {
			if now.Sub(other.usedAt) > thumbnailTTL {
				delete(t.cached, name)
			}
		}
		k = &cachedThumbnail{busy: make(chan struct{}, 1)}
		t.cached[channel] = k
	}
	k.usedAt = now
	return k
}
