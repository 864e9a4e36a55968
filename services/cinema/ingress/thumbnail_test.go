package ingress

import (
	"bytes"
	"image"
	"image/jpeg"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestThumbnail checks that a live channel has a thumbnail of its present picture, and that
// others have none.
func TestThumbnail(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	g, _, c := start(t, nil)
	began := time.Now()
	for _, spec := range []gatewayapi.Channel{
		{Name: "news", Number: 7, Source: "test:?size=1280x720&rate=10&keyframes=1s", BitRate: 1_000_000, To: mediaAddr},
		{Name: "published", Number: 8, BitRate: 500_000, To: mediaAddr},
	} {
		if err := c.SetChannel(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"published", "none"} {
		_, err := c.Thumbnail(t.Context(), name)
		wants(t, err, control.CodeNotFound, "", "not on air")
	}
	until(t, "a key frame", func() bool {
		return state(t, g, "news").OnAir == gatewayapi.OnAirLive && len(g.channel("news").cache.Group()) > 0
	})
	p, err := c.Thumbnail(t.Context(), "news")
	if err != nil {
		t.Fatal(err)
	}
	picture, err := jpeg.Decode(bytes.NewReader(p.JPEG))
	if err != nil {
		t.Fatal(err)
	}
	size := picture.Bounds().Size()
	red, green, blue, _ := picture.At(10, 10).RGBA() // in the square of the channel's colour
	want := gatewayapi.PatternColour(7)
	far := func(a, b uint32) bool { return max(a, b)-min(a, b) > 40 }
	if size.X != 320 || size.Y != 180 || far(red>>8, want>>16) || far(green>>8, want>>8&0xff) || far(blue>>8, want&0xff) {
		t.Errorf("%v, %d %d %d, want 320x180 and %06x", size, red>>8, green>>8, blue>>8, want)
	}
	if age := gatewayapi.PatternAge(clockOf(picture), p.At); age > p.At.Sub(began) {
		t.Errorf("%v after the channel began, its picture is %v old", p.At.Sub(began), age)
	}
	t.Logf("%d bytes", len(p.JPEG))
	again, err := c.Thumbnail(t.Context(), "news")
	if err != nil || !again.At.Equal(p.At) {
		t.Errorf("another was made %v later, %v", again.At.Sub(p.At), err)
	}
}

// clockOf reads the clock of a test pattern.
func clockOf(p image.Image) (clock uint16) {
	cell := p.Bounds().Dy() / 12
	for i := range gatewayapi.PatternClockBits {
		_, green, _, _ := p.At((2+i)*cell+cell/2, cell/2).RGBA()
		clock = clock<<1 | uint16(green>>15)
	}
	return clock
}
