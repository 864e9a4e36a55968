package testbed

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

//go:embed pictures.js
var pictures string

//go:embed decoder.js
var decoder string

// Zap holds the times of one change of channel in a browser.
type Zap struct {
	// Took is the time from the key to the first picture of the new channel.
	Took time.Duration
	// Frozen is the longest time without a new picture around the change.
	Frozen time.Duration
	// Wrong counts the pictures that were of neither channel, or of the old one after the first of
	// the new one.
	Wrong int
	// Heard is the time from the first picture of the new channel to its sound, negative if the
	// sound comes before. Silent means that no sound has come within a second.
	Heard  time.Duration
	Silent bool
	// First is the time from when the ingress gateway drew the first picture of the new channel
	// until the browser showed it. Last is that of a picture a second later.
	First, Last time.Duration
}

// ErrNoPicture is returned (wrapped) if the new channel does not appear in time.
var ErrNoPicture = errors.New("the new channel is not seen")

// WatchPictures makes the page record what its player shows and plays, which must be test patterns
// of Cinema. The player must already run.
func (b *Browser) WatchPictures(ctx context.Context) error {
	return b.Do(ctx, fmt.Sprintf("window.sluiceClockBits = %d;\n", gatewayapi.PatternClockBits)+pictures)
}

// Shows waits until the video shows the test pattern of a channel.
func (b *Browser) Shows(ctx context.Context, channel uint16) error {
	return Poll(ctx, fmt.Sprintf("a picture of channel %d", channel), func() error {
		which, err := InPage[int](ctx, b, fmt.Sprintf("sluicePictures.shows([%s])", colour(channel)))
		if err == nil && which != 0 {
			err = errors.New("the video shows something else, or nothing")
		}
		return err
	})
}

// Zap presses a key that makes the page change from one channel to another, and measures the
// change.
func (b *Browser) Zap(ctx context.Context, key string, from, to uint16) (Zap, error) {
	if err := b.Press(ctx, key); err != nil {
		return Zap{}, err
	}
	seen, err := InPage[struct {
		Zap, Frozen float64 // in ms
		Heard       *float64
		Wrong       int
		First, Last seenClock
		Error       string
	}](ctx, b, fmt.Sprintf("sluicePictures.change(%s, %s, %d)", colour(from), colour(to), gatewayapi.PatternPitch(to)))
	if err != nil {
		return Zap{}, err
	}
	if seen.Error != "" {
		page, _ := InPage[string](ctx, b, "document.body.innerText") // The text of the page completes the error if it is available.
		return Zap{}, fmt.Errorf("change from channel %d to %d: %w: %s; the page says %.300q", from, to, ErrNoPicture, seen.Error, page)
	}
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	z := Zap{Took: ms(seen.Zap), Frozen: ms(seen.Frozen), Wrong: seen.Wrong, Silent: seen.Heard == nil, First: seen.First.age(), Last: seen.Last.age()}
	if seen.Heard != nil {
		z.Heard = ms(*seen.Heard)
	}
	return z, nil
}

// seenClock is the time that a test pattern showed, and when it was seen.
type seenClock struct {
	Clock uint16
	Time  float64 // ms since 1970
}

func (s seenClock) age() time.Duration {
	return gatewayapi.PatternAge(s.Clock, time.UnixMicro(int64(s.Time*1000)))
}

// WatchDecoder makes pages that are opened from now on record when they receive and decode pictures, for
// LastPictures. It is needed for players that decode by themselves.
func (b *Browser) WatchDecoder(ctx context.Context) error { return b.Before(ctx, decoder) }

// SeenPicture holds the times of one picture.
type SeenPicture struct {
	// Stamp is its timestamp in the viewer's stream, in units of 1/90000 s.
	Stamp uint32
	// Drawn is when the ingress gateway drew it, Received when the browser had all of it, Decoded when
	// it was decoded, and Seen when the page looked at what was shown.
	Drawn, Received, Decoded, Seen time.Time
}

// LastPictures returns the last pictures that the page has shown, n of them or fewer.
func (b *Browser) LastPictures(ctx context.Context, n int) ([]SeenPicture, error) {
	all, err := InPage[[]struct {
		seenClock
		Stamp             float64
		Received, Decoded float64 // ms since 1970
	}](ctx, b, fmt.Sprintf("sluicePictures.last(%d)", n))
	if err != nil {
		return nil, err
	}
	at := func(ms float64) time.Time { return time.UnixMicro(int64(ms * 1000)) }
	out := make([]SeenPicture, len(all))
	for i, x := range all {
		seen := at(x.Time)
		out[i] = SeenPicture{uint32(x.Stamp), seen.Add(-x.age()), at(x.Received), at(x.Decoded), seen}
	}
	return out, nil
}

// colour returns the colour of a channel's test pattern as a JSON array of red, green and blue.
func colour(channel uint16) string {
	c := gatewayapi.PatternColour(channel)
	b, _ := json.Marshal([]int{int(c >> 16), int(c >> 8 & 0xff), int(c & 0xff)}) // It cannot fail.
	return string(b)
}
