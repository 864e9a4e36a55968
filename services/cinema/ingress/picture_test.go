package ingress

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/mpegts"
)

func TestOutputPicture(t *testing.T) {
	for _, c := range []struct {
		name   string
		in     inputPicture
		format gatewayapi.Picture
		want   string // size, rate, level, turn
		text   string
	}{
		{"unchanged", inputPicture{1280, 720, 1, 0, 25}, "", "1280x720 25 3.1 0", "1280x720, 25 pictures a second"},
		{"odd width", inputPicture{853, 480, 1, 0, 30}, "", "854x480 30 3.1 0", "854x480, with even numbers of pixels in the place of 853x480, 30 pictures a second"},
		{"odd height", inputPicture{640, 361, 1, 0, 30}, "", "640x362 30 3.1 0", "640x362, with even numbers of pixels in the place of 640x361, 30 pictures a second"},
		{"wide pixels", inputPicture{720, 576, 64. / 45, 0, 25}, "", "1024x576 25 3.1 0", "1024x576, made of square pixels, which were 1.42 times as wide as high in 720x576, 25 pictures a second"},
		{"narrow pixels", inputPicture{720, 480, 8. / 9, 0, 30000. / 1001}, "", "640x480 29.97 3.1 0", "640x480, made of square pixels, which were 0.89 times as wide as high in 720x480, 29.97 pictures a second"},
		{"portrait", inputPicture{1080, 1920, 1, 0, 30}, "", "720x1280 30 3.1 0", "720x1280, scaled down from 1080x1920, because the channel's picture is 720p, at most 1280x720, 30 pictures a second"},
		{"portrait, large", inputPicture{1080, 1920, 1, 0, 30}, "1080p", "1080x1920 30 4.0 0", "1080x1920, 30 pictures a second"},
		{"high", inputPicture{720, 1560, 1, 0, 30}, "", "590x1280 30 3.1 0", "590x1280, scaled down from 720x1560, because the channel's picture is 720p, at most 1280x720, 30 pictures a second"},
		{"1080p25", inputPicture{1920, 1080, 1, 0, 25}, "1080p", "1920x1080 25 4.0 0", "1920x1080, 25 pictures a second"},
		{"1080p25, scaled", inputPicture{1920, 1080, 1, 0, 25}, "", "1280x720 25 3.1 0", "1280x720, scaled down from 1920x1080, because the channel's picture is 720p, at most 1280x720, 25 pictures a second"},
		{"1080p60", inputPicture{1920, 1080, 1, 0, 60}, "1080p", "1920x1080 60 4.2 0", "1920x1080, 60 pictures a second"},
		{"720p60", inputPicture{1280, 720, 1, 0, 60}, "", "1280x720 60 3.2 0", "1280x720, 60 pictures a second"},
		{"turned", inputPicture{1280, 720, 1, 90, 30}, "", "720x1280 30 3.1 90", "720x1280, turned by 90 degrees, 30 pictures a second"},
		{"upside down", inputPicture{640, 360, 1, 180, 30}, "", "640x360 30 3.1 180", "640x360, turned by 180 degrees, 30 pictures a second"},
		{"turned, with wide pixels", inputPicture{720, 576, 64. / 45, 270, 25}, "", "576x1024 25 3.1 270", "576x1024, made of square pixels, which were 1.42 times as wide as high in 720x576, turned by 270 degrees, 25 pictures a second"},
		{"fast", inputPicture{640, 360, 1, 0, 120}, "", "640x360 60 3.1 0", "640x360, 60 of 120 pictures a second"},
		{"rate not known", inputPicture{640, 360, 1, 0, 0}, "", "640x360 30 3.1 0", "640x360, at most 30 pictures a second"},
		{"not known", inputPicture{}, "", "0x0 30 3.1 0", ""},
		{"not known, large", inputPicture{}, "1080p", "0x0 30 4.0 0", ""},
		{"a strip", inputPicture{4000, 10, 1, 0, 25}, "", "1280x16 25 3.1 0", "1280x16, scaled down from 4000x10, because the channel's picture is 720p, at most 1280x720, 25 pictures a second"},
	} {
		out := outputOf(c.in, c.format)
		if got := fmt.Sprintf("%dx%d %s %s %d", out.width, out.height, number(out.rate), out.level, out.turn); got != c.want || out.text != c.text {
			t.Errorf("%s: %s: %q\nwant %s: %q", c.name, got, out.text, c.want, c.text)
		}
	}
}

// TestOutputPictureIsPermitted checks that the picture of any source is even, upright, and within its
// format and its level.
func TestOutputPictureIsPermitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := inputPicture{
			rapid.IntRange(1, 1<<16).Draw(t, "width"), rapid.IntRange(1, 1<<16).Draw(t, "height"),
			rapid.Float64Range(1./65535, 65535).Draw(t, "aspect"), rapid.SampledFrom([]int{0, 90, 180, 270}).Draw(t, "turn"), rapid.Float64Range(0, 1e6).Draw(t, "rate"),
		}
		format := rapid.SampledFrom([]gatewayapi.Picture{"", "360p", "480p", "720p", "1080p", "1440p"}).Draw(t, "format")
		out := outputOf(in, format)
		long, short := format.Size()
		if out.width%2 != 0 || out.height%2 != 0 || max(out.width, out.height) > long || min(out.width, out.height) > short || min(out.width, out.height) < 16 || out.rate > maxFrameRate || out.rate <= 0 {
			t.Fatalf("%+v becomes %+v", in, out)
		}
		for _, l := range levels {
			if blocks := (out.width + 15) / 16 * ((out.height + 15) / 16); l.name == out.level && (blocks > l.perPicture || float64(blocks)*out.rate > float64(l.perTime)) {
				t.Fatalf("%+v becomes %+v, which exceeds its level", in, out)
			}
		}
	})
}

func TestRoundRate(t *testing.T) {
	for rate, want := range map[float64]float64{29.94: 30, 30.05: 30, 24.98: 25, 23.98: 24, 59.2: 60, 25.2: 26, 17: 17, 0.3: 1} {
		if got := roundRate(rate); got != want {
			t.Errorf("%v: %v, want %v", rate, got, want)
		}
	}
}

// TestPictures checks the pictures that viewers get of producers whose pictures are odd, anamorphic,
// portrait, turned or large, by each protocol: their size and level, their rate, and what the channel says
// of them.
func TestPictures(t *testing.T) {
	live.Test(t)
	needFFmpeg(t)
	const sound = " -f lavfi -t 60 -i sine -c:a aac -c:v libx264 -preset ultrafast -g 25 "
	for _, x := range []struct{ name, film, bits, want, text string }{
		{"odd", "-f lavfi -t 60 -i testsrc2=size=854x480:rate=25" + sound + "-vf format=yuv444p,scale=853:480,setsar=1 -pix_fmt yuv444p", "", "854x480 level 31", "854x480, with even numbers of pixels in the place of 853x480, 25 pictures a second"},
		{"anamorphic", "-f lavfi -t 60 -i testsrc2=size=720x576:rate=25,setsar=64/45" + sound + "-pix_fmt yuv420p", "", "1024x576 level 31", "1024x576, made of square pixels"},
		{"portrait", "-f lavfi -t 60 -i testsrc2=size=720x1560:rate=25" + sound + "-pix_fmt yuv420p", "", "590x1280 level 31", "590x1280, scaled down from 720x1560"},
		{"turned", "-f lavfi -t 60 -i testsrc2=size=640x360:rate=25" + sound + "-pix_fmt yuv420p", "-bsf:v h264_metadata=display_orientation=insert:rotate=90 ", "360x640 level 31", "360x640, turned by 270 degrees"},
		{"large", "-f lavfi -t 60 -i testsrc2=size=1920x1080:rate=25" + sound + "-pix_fmt yuv420p", "", "1280x720 level 31", "1280x720, scaled down from 1920x1080, because the channel's picture is 720p, at most 1280x720, 25 pictures a second"},
	} {
		t.Run(x.name, func(t *testing.T) {
			film := makeFilm(t, "film.mkv", strings.Fields(x.film)...)
			for scheme, path := range map[string]string{"rtmp": "/live/x", "srt": ""} {
				t.Run(scheme, func(t *testing.T) {
					g, all, port := listening(t, scheme+"://127.0.0.1:PORT"+path)
					format := map[string]string{"rtmp": "flv", "srt": "mpegts"}[scheme]
					produceWith(t, "-re -i "+film+" -c copy "+x.bits+"-f "+format, fmt.Sprintf("%s://127.0.0.1:%s%s", scheme, port, path))
					until(t, "a picture", func() bool { return len(keyFrames(t, all.of(7).to(mediaTo))) > 1 })
					if got := describe(t, g.channel("live").keyFrame(t.Context())); got != x.want {
						t.Errorf("%s, want %s", got, x.want)
					}
					if s := state(t, g, "live"); !strings.HasPrefix(s.Shown, x.text) || fault(s) != "" {
						t.Errorf("%q, want %q; %s", s.Shown, x.text, s.Error)
					}
				})
			}
		})
	}
}

// describe returns the size and the level of a picture with square pixels, and more of any other one.
func describe(t *testing.T, picture []byte) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-of", "csv=p=0:s=,", "-show_entries", "stream=width,height,sample_aspect_ratio,level", "-f", "h264", "-")
	cmd.Stdin = bytes.NewReader(picture)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Split(strings.TrimSpace(string(out)), ",")
	if len(f) != 4 || f[2] != "1:1" {
		return strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("%sx%s level %s", f[0], f[1], f[3])
}

// TestFiltersForUnknownPictures checks that a picture that could not be examined becomes even, square, and as
// small as its channel's, too.
func TestFiltersForUnknownPictures(t *testing.T) {
	needFFmpeg(t)
	for input, want := range map[string]string{
		"testsrc2=size=1920x1080":                                     "1280x720 level 31",
		"testsrc2=size=720x576,setsar=64/45":                          "1024x576 level 31",
		"testsrc2=size=720x1560":                                      "590x1280 level 31",
		"testsrc2=size=640x360,setsar=0":                              "640x360 level 31",
		"testsrc2=size=854x480,format=yuv444p,scale=853:361,setsar=1": "854x362 level 31",
	} {
		out := outputOf(inputPicture{}, "")
		args := []string{"-v", "error", "-f", "lavfi", "-i", input, "-vf", out.filters("") + ",format=yuv420p", "-frames:v", "1", "-c:v", "libx264", "-level:v", out.level, "-f", "h264", "-"}
		picture, err := exec.CommandContext(t.Context(), "ffmpeg", args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(t, picture); got != want {
			t.Errorf("%s: %s, want %s", input, got, want)
		}
	}
}

// TestProbedPicture checks what is taken from ffprobe's description of a stream.
func TestProbedPicture(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       inputPicture
	}{
		{"plain", `{"streams":[{"codec_type":"audio"},{"codec_type":"video","width":1280,"height":720,"sample_aspect_ratio":"1:1","r_frame_rate":"30000/1001","avg_frame_rate":"0/0"}]}`, inputPicture{1280, 720, 1, 0, 30000. / 1001}},
		{"turned by the container", `{"streams":[{"codec_type":"video","width":640,"height":360,"r_frame_rate":"25/1","side_data_list":[{},{"rotation":-90}]}]}`, inputPicture{640, 360, 0, 90, 25}},
		{"turned by the pictures", `{"frames":[{"media_type":"audio","side_data_list":[{"rotation":90}]},{"media_type":"video","side_data_list":[{"rotation":-180}]}],"streams":[{"codec_type":"video","width":640,"height":360,"r_frame_rate":"25/1"}]}`, inputPicture{640, 360, 0, 180, 25}},
		{"turned by any number", `{"streams":[{"codec_type":"video","width":640,"height":360,"r_frame_rate":"25/1","side_data_list":[{"rotation":1000}]}]}`, inputPicture{640, 360, 0, 90, 25}},
		{"the rate of a clock", `{"streams":[{"codec_type":"video","width":640,"height":360,"sample_aspect_ratio":"0:1","r_frame_rate":"1000/1","avg_frame_rate":"989/33"}]}`, inputPicture{640, 360, 0, 0, 30}},
		{"the rate of fields", `{"streams":[{"codec_type":"video","width":720,"height":576,"sample_aspect_ratio":"64:45","r_frame_rate":"50/1","avg_frame_rate":"25/1"}]}`, inputPicture{720, 576, 64. / 45, 0, 25}},
		{"even numbers", `{"streams":[{"codec_type":"video","width":854,"height":480,"sample_aspect_ratio":"1280:1281","r_frame_rate":"25/1"}]}`, inputPicture{854, 480, 1, 0, 25}},
		{"no picture", `{"streams":[{"codec_type":"audio"}]}`, inputPicture{}},
	} {
		var p probeResult
		if err := json.Unmarshal([]byte(c.text), &p); err != nil {
			t.Fatal(err)
		}
		if got := p.picture(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestPictureOfStreamThatBegins checks that the picture of a stream is known although the stream's first key
// frame comes later than its picture and sound are waited for.
func TestPictureOfStreamThatBegins(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	const group = 4 * time.Second
	film, err := os.ReadFile(makeFilm(t, "film.ts", strings.Fields("-f lavfi -t 12 -i testsrc2=size=320x180:rate=25 -f lavfi -t 12 -i sine -c:v libx264 -tune zerolatency -g 100 -sc_threshold 0 -pix_fmt yuv420p -c:a aac -b:a 64k -pes_payload_size 0")...))
	if err != nil {
		t.Fatal(err)
	}
	g, all, c := start(t, nil)
	if err := c.SetChannel(t.Context(), waits("live", 7)); err != nil {
		t.Fatal(err)
	}
	s, err := parseSource("udp://127.0.0.1:1024")
	if err != nil {
		t.Fatal(err)
	}
	// The stream begins after a fifth of its first group of pictures, with its tables.
	const step = 40 * time.Millisecond
	each := len(film) / int(3*group/step) / mpegts.PacketSize * mpegts.PacketSize
	rest := film[len(film)/15/mpegts.PacketSize*mpegts.PacketSize:]
	tick := time.NewTicker(step)
	t.Cleanup(tick.Stop)
	stream := newTSStream(func(time.Time) ([]byte, error) {
		select {
		case <-tick.C:
		case <-g.tasks.Context().Done():
			return nil, errEnded
		}
		n := min(each, len(rest))
		part := rest[:n]
		rest = rest[n:]
		return part, nil
	}, func() {})
	r := &relay{ffmpeg: &ffmpegSource{ffmpeg: "ffmpeg", source: s, ch: g.channel("live")}, producer: newProducer("test", stream, time.Now())}
	g.tasks.Start(func(ctx context.Context) { _ = r.run(ctx) })
	until(t, "a picture", func() bool { return len(keyFrames(t, all.of(7).to(mediaTo))) > 0 })
	until(t, "what it is", func() bool { return state(t, g, "live").Shown == "320x180, 25 pictures a second" })
}
