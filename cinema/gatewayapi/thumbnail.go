package gatewayapi

import (
	"context"
	"sync"
	"time"
)

const (
	// MaxThumbnail bounds a thumbnail, in bytes.
	MaxThumbnail = 32 << 10
	// ThumbnailAge is for how long one is shown before another is made.
	ThumbnailAge = 5 * time.Second
	// thumbnailTimeout bounds the making of one, thumbnailsAtOnce how many are made at once.
	thumbnailTimeout = 3 * time.Second
	thumbnailsAtOnce = 4
	// thumbnailKept is for how long one is kept that nobody asks for.
	thumbnailKept = time.Minute
)

// Thumbnail is a small picture of a channel: JPEG, 320x180 at most, and at most MaxThumbnail
// bytes.
type Thumbnail struct {
	At   time.Time `json:"at" doc:"When it was made"`
	JPEG []byte    `json:"jpeg" doc:"The picture, in base64"`
}

// Thumbnails keeps those of channels, and why there was none: however many ask, each is made
// once in ThumbnailAge, and none that nobody asks for. Make it with NewThumbnails; its methods
// may be called concurrently.
type Thumbnails struct {
	get    func(ctx context.Context, channel string) (Thumbnail, error)
	places chan struct{}

	mu  sync.Mutex
	all map[string]*keptThumbnail
}

type keptThumbnail struct {
	turn chan struct{} // holds one while it is made or read
	at   time.Time
	is   Thumbnail
	err  error
	used time.Time // under the lock of all
}

// NewThumbnails returns one that gets thumbnails by a function.
func NewThumbnails(get func(ctx context.Context, channel string) (Thumbnail, error)) *Thumbnails {
	return &Thumbnails{get: get, places: make(chan struct{}, thumbnailsAtOnce), all: map[string]*keptThumbnail{}}
}

// Of is the thumbnail of a channel, which the caller knows to be one.
func (t *Thumbnails) Of(ctx context.Context, channel string) (Thumbnail, error) {
	k := t.kept(channel, time.Now())
	// Others want it, too, if the caller does not wait for it.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), thumbnailTimeout)
	defer cancel()
	for _, turn := range []chan struct{}{k.turn, t.places} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-making.Done():
			return Thumbnail{}, context.Cause(making)
		}
		if turn == k.turn && time.Since(k.at) < ThumbnailAge {
			return k.is, k.err
		}
	}
	k.is, k.err = t.get(making, channel)
	k.at = time.Now()
	return k.is, k.err
}

// kept is what there is of a channel. What nobody has asked for of late is forgotten.
func (t *Thumbnails) kept(channel string, now time.Time) *keptThumbnail {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.all[channel]
	if k == nil {
		for name, other := range t.all {
			if now.Sub(other.used) > thumbnailKept {
				delete(t.all, name)
			}
		}
		k = &keptThumbnail{turn: make(chan struct{}, 1)}
		t.all[channel] = k
	}
	k.used = now
	return k
}
