package ingress

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestBacklog checks that a producer that sends at once what it could not send for a while causes
// no burst of pictures: the gateway sends them at the declared rate, a quarter more at most, and half a
// second of them beyond.
func TestBacklog(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	b, err := os.ReadFile(makeFilm(t, "film.ts", strings.Fields("-f lavfi -t 20 -i testsrc2=size=320x180:rate=25 -f lavfi -t 20 -i sine -c:v libx264 -g 50 -pix_fmt yuv420p -c:a aac -b:a 64k")...))
	if err != nil {
		t.Fatal(err)
	}
	g, all, c := start(t, nil)
	spec := waits("live", 7)
	spec.BitRate = 20_000_000 // its bound drops nothing
	if err := c.SetChannel(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	s, err := parseSource("udp://127.0.0.1:1024")
	if err != nil {
		t.Fatal(err)
	}
	sent := false
	film := newTSStream(func(deadline time.Time) ([]byte, error) {
		if sent {
			<-t.Context().Done()
			return nil, errEnded
		}
		sent = true
		return b, nil
	}, func() {})
	r := &relay{ffmpeg: &ffmpegSource{ffmpeg: "ffmpeg", source: s, ch: g.channel("live")}, producer: newProducer("test", film, time.Now())}
	began := time.Now()
	g.tasks.Start(func(ctx context.Context) { _ = r.run(ctx) })
	pictures := map[uint32]bool{}
	until(t, "the sound", func() bool {
		sounds := 0
		for _, p := range parsed(t, all.of(7).to(mediaTo)) {
			if p.Video() {
				pictures[p.Timestamp] = true
			} else if p.Audio() {
				sounds++
			}
		}
		return sounds > 18*50
	})
	most := defaultFrameRate * (0.5 + 1.25*time.Since(began).Seconds())
	if n := len(pictures); n == 0 || float64(n) > most+1 {
		t.Errorf("%d pictures, want at most %.0f", n, most)
	}
}
