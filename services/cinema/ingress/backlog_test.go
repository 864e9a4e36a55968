package ingress

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// relayFilm makes a film with ffmpeg, and has a gateway relay it as the stream of a producer that sends it at
// once, and nothing after it. It returns the output of the channel.
func relayFilm(t *testing.T, args string) *sink {
	t.Helper()
	needFFmpeg(t)
	b, err := os.ReadFile(makeFilm(t, "film.ts", strings.Fields(args)...))
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
	film := newTSStream(func(time.Time) ([]byte, error) {
		if sent {
			<-t.Context().Done()
			return nil, errEnded
		}
		sent = true
		return b, nil
	}, func() {})
	r := &relay{ffmpeg: &ffmpegSource{ffmpeg: "ffmpeg", source: s, ch: g.channel("live")}, producer: newProducer("test", film, time.Now())}
	g.tasks.Start(func(ctx context.Context) { _ = r.run(ctx) })
	return all.of(7)
}

// TestBacklog checks that a producer that sends at once what it could not send for a while causes
// no burst of pictures: the gateway sends them at the declared rate, a quarter more at most, and half a
// second of them beyond.
func TestBacklog(t *testing.T) {
	t.Parallel()
	began := time.Now()
	out := relayFilm(t, "-f lavfi -t 20 -i testsrc2=size=320x180:rate=25 -f lavfi -t 20 -i sine -c:v libx264 -g 50 -pix_fmt yuv420p -c:a aac -b:a 64k")
	pictures := map[uint32]bool{}
	until(t, "the sound", func() bool {
		sounds := 0
		for _, p := range parsed(t, out.to(mediaTo)) {
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

// TestFirstKeyFrame checks that viewers need not wait for a producer's second key frame.
func TestFirstKeyFrame(t *testing.T) {
	t.Parallel()
	out := relayFilm(t, "-f lavfi -t 3 -i testsrc2=size=320x180:rate=25 -f lavfi -t 3 -i sine -c:v libx264 -g 1000 -pix_fmt yuv420p -c:a aac -b:a 64k")
	until(t, "a picture", func() bool { return len(keyFrames(t, out.to(mediaTo))) > 0 })
}
