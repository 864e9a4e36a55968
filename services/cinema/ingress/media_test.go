package ingress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// TestMedia checks that a producer may send picture, sound, or both, that either may come later
// or end, that the channel says so, and that none of this ends the producer's connection.
func TestMedia(t *testing.T) {
	live.Test(t)
	t.Parallel()
	needFFmpeg(t)
	const (
		camera     = "-f lavfi -t 60 -i testsrc2=size=320x180:rate=20 "
		microphone = "-f lavfi -t 60 -i sine=sample_rate=44100 "
	)
	for _, x := range []struct {
		name, inputs string
		want         []gatewayapi.Media
	}{
		{"sound only", microphone, []gatewayapi.Media{gatewayapi.MediaSound}},
		{"picture only", camera, []gatewayapi.Media{gatewayapi.MediaPicture}},
		{"sound later", camera + "-itsoffset 20 " + microphone, []gatewayapi.Media{gatewayapi.MediaPicture, gatewayapi.MediaBoth}},
		{"picture later", "-itsoffset 20 " + camera + microphone, []gatewayapi.Media{gatewayapi.MediaSound, gatewayapi.MediaBoth}},
		{"picture ends", strings.Replace(camera, "60", "20", 1) + microphone, []gatewayapi.Media{gatewayapi.MediaBoth, gatewayapi.MediaSound}},
		{"picture comes back", camera + microphone + "-vf select=lt(t\\,15)+gt(t\\,35) -vsync vfr ", []gatewayapi.Media{gatewayapi.MediaBoth, gatewayapi.MediaSound, gatewayapi.MediaBoth}},
		{"sound comes back", camera + microphone + "-af aselect=lt(t\\,15)+gt(t\\,35) ", []gatewayapi.Media{gatewayapi.MediaBoth, gatewayapi.MediaPicture, gatewayapi.MediaBoth}},
		{"sound ends", camera + strings.Replace(microphone, "60", "20", 1), []gatewayapi.Media{gatewayapi.MediaBoth, gatewayapi.MediaPicture}},
	} {
		film := makeFilm(t, "film.mkv", strings.Fields(x.inputs+"-c:v libx264 -preset ultrafast -g 20 -pix_fmt yuv420p -b:v 300k -c:a aac -max_muxing_queue_size 4000")...)
		for scheme, path := range map[string]string{"rtmp": "/live/x", "srt": ""} {
			t.Run(x.name+" by "+scheme, func(t *testing.T) {
				t.Parallel()
				g, all, port := listening(t, scheme+"://127.0.0.1:PORT"+path)
				format := map[string]string{"rtmp": "flv", "srt": "mpegts"}[scheme]
				produceWith(t, "-re -i "+film+" -c copy -f "+format,
					fmt.Sprintf("%s://127.0.0.1:%s%s", scheme, port, path))
				for _, want := range x.want {
					until(t, string(want), func() bool {
						now := state(t, g, "live")
						return now.Media == want && (want == gatewayapi.MediaSound) == strings.Contains(fault(now), "no picture")
					})
					sofar := len(all.of(7).to(mediaTo))
					// Viewers get a picture in any case, and sound if there is any.
					until(t, "what viewers need with "+string(want), func() bool {
						key, heard := false, want == gatewayapi.MediaPicture
						for _, p := range parsed(t, all.of(7).to(mediaTo)[sofar:]) {
							key, heard = key || p.KeyFrame(), heard || p.Audio()
						}
						return key && heard
					})
				}
				if n := g.totals.failures.Load(); n > 0 {
					t.Errorf("%d producers have gone: %q", n, state(t, g, "live").Error)
				}
			})
		}
	}
}

// TestNoPicture checks that a channel whose picture does not come any more, while its sound does,
// reports that.
func TestNoPicture(t *testing.T) {
	g, _, c := start(t, nil)
	if err := c.SetChannel(t.Context(), waits("news", 7)); err != nil {
		t.Fatal(err)
	}
	ch := g.channel("news")
	ch.feed([]byte{0x80, media.AudioType, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1})
	if s := state(t, g, "news"); s.Media != gatewayapi.MediaSound || s.Error != "" {
		t.Errorf("at first: %+v", s)
	}
	ch.mu.Lock()
	ch.since = ch.since.Add(-2 * mediumTimeout)
	ch.mu.Unlock()
	if s := state(t, g, "news"); !strings.Contains(s.Error, "no picture has come") {
		t.Errorf("without a picture: %+v", s)
	}
	ch.feed([]byte{0x80, media.VideoType, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 1})
	if s := state(t, g, "news"); s.Media != gatewayapi.MediaBoth || s.Error != "" {
		t.Errorf("with a picture: %+v", s)
	}
}

// TestForeignCodecs checks that a codec that ffmpeg does not read in RTMP is named.
func TestForeignCodecs(t *testing.T) {
	t.Parallel()
	for name, body := range map[string][]byte{
		"HEVC": {0x1c, 1, 0, 0, 0}, "AV1": {0x90, 'a', 'v', '0', '1'}, "Opus": {0x90, 'O', 'p', 'u', 's'}, `codec "zzzz"`: {0x93, 'z', 'z', 'z', 'z'},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _, port := listening(t, "rtmp://127.0.0.1:PORT/live/x")
			conn := rtmpClient(t, port, "live", "x", stagePublished)
			kind := byte(9)
			if name == "Opus" {
				kind = 8
			}
			if _, err := conn.Write(append([]byte{6, 0, 0, 0, 0, 0, byte(len(body)), kind, 1, 0, 0, 0}, body...)); err != nil {
				t.Fatal(err)
			}
			until(t, "the name", func() bool { return strings.Contains(state(t, g, "live").Error, "it sends "+name+" by RTMP") })
		})
	}
}
