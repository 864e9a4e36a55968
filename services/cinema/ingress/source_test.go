package ingress

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

func TestSources(t *testing.T) {
	c := gatewayapi.Channel{Name: "news", Number: 7, BitRate: 1_000_000}
	for _, x := range []struct {
		text  string
		waits string   // where it waits for a producer
		want  []string // arguments of ffmpeg, in this order
	}{
		{"test:", "", []string{"-f", "lavfi", "testsrc2=size=640x360:rate=30,", "sine=frequency=329:", "keyint=60:", "rtp://127.0.0.1:5000?rtcpport=5000&pkt_size=1200", "0:a:0", "111"}},
		{"test:?size=320x180&rate=25&keyframes=500ms", "", []string{"testsrc2=size=320x180:rate=25,", "keyint=12:"}},
		{"file:/srv/film.mp4", "", []string{"-protocol_whitelist", "file", "-stream_loop", "-1", "file:/srv/film.mp4", "0:v:0", "0:a:0"}},
		{"rtsp://camera:554/stream", "", []string{"-rtsp_transport", "tcp", "rtsp://camera:554/stream"}},
		{"rtmp://:1935/live/news", "0.0.0.0:1935 live/news ", nil},
		{"rtmp://:1935", "0.0.0.0:1935  ", nil},
		{"srt://192.0.2.1:9000?latency=200000&streamid=x", "192.0.2.1:9000 x latency=200000", nil},
		{"udp://:9001", "0.0.0.0:9001  ", nil},
		{"udp://[::1]:9001", "[::1]:9001  ", nil},
	} {
		t.Run(x.text, func(t *testing.T) {
			s, err := parseSource(x.text)
			waits := ""
			if w := s.waits; w != nil {
				waits = fmt.Sprintf("%v %s %s", w.at, w.key, w.options.Encode())
			}
			if err != nil || waits != x.waits {
				t.Fatalf("%+v waits at %q, %v", s, waits, err)
			}
			args := s.command(c, 5000, time.Unix(1, 0), sourceProperties{})
			rest := args
			for _, want := range x.want {
				i := slices.IndexFunc(rest, func(a string) bool {
					return strings.HasPrefix(a, want) || strings.Contains(want, ":") && strings.Contains(a, want)
				})
				if i < 0 {
					t.Fatalf("no %q in %q", want, args)
				}
				rest = rest[i:]
			}
		})
	}
}

func TestSourcesRefuse(t *testing.T) {
	for text, want := range map[string]string{
		"http://192.0.2.1/film.mp4":      "want nothing",
		"news":                           "want nothing",
		"concat:/a|/b":                   "want nothing",
		"file:film.mp4":                  "absolute path",
		"file:/srv/../etc/passwd":        "absolute path",
		"file:":                          "absolute path",
		"file:/srv/a film":               "without spaces",
		"test:?size=640":                 "like 640x360",
		"test:?size=641x360":             "even numbers",
		"test:?size=1920x1080":           "to 1280x720",
		"test:?rate=0":                   "from 1 to 60",
		"test:?rate=2.5":                 "whole number",
		"test:?keyframes=1":              "a duration",
		"test:?keyframes=1h":             "from 100ms to 10s",
		"test:?colour=red":               "size, rate or keyframes",
		"test:?rate=30&rate=31":          "given 2 times",
		"test:640x360":                   "parameters like",
		"test:?a=%zz":                    "parameters",
		"rtsp:///stream":                 "with a host",
		"rtmp://:80/live":                "1024 to 65535",
		"rtmp://live.example.org:1935/x": "an address of this machine",
		"srt://:9000?mode=caller":        `"srt://:9000?mode=caller": want no parameters but`,
		"udp://:9000?localaddr=10.0.0.1": `"udp://:9000?localaddr=…": want no parameters but`,
		"udp://":                         "1024 to 65535",
		"srt://:9000?passphrase=short":   `"srt://:9000?passphrase=…": want a passphrase of 10 to 79 bytes`,
		"srt://:9000?pbkeylen=8":         "pbkeylen 16, 24 or 32",
		"udp://:99999":                   "65535",
		"rtsp://a\x00b/":                 "control characters",
		strings.Repeat("x", 2000):        "at most 1024",
	} {
		if s, err := parseSource(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %+v, %v; want an error with %q", text, s, err, want)
		}
	}
}

// TestSourcesRefuseSecrets checks that refusals do not show what may be secret in a source.
func TestSourcesRefuseSecrets(t *testing.T) {
	for _, text := range []string{
		"http://me:SECRET@192.0.2.1/film.mp4", "news?SECRET", "rtsp://me:SECRET @camera/", "rtsp://me:SECRET/@camera/", "rtsp:///live?token=SECRET",
		"srt://:9000?passphrase=SECRET&mode=caller", "srt://:9000?SECRET", "udp://:80?SECRET",
	} {
		if _, err := parseSource(text); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzParseSource checks that any source is refused, or becomes valid arguments, none of which
// is mistaken for an option because of its first character.
func FuzzParseSource(f *testing.F) {
	for _, s := range []string{"test:?size=64x64", "file:/a", "rtsp://h/", "rtmp://:1935/-listen", "srt://:9000?latency=1", "udp://:9000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSource(text)
		if err != nil {
			return
		}
		args := s.command(gatewayapi.Channel{Name: "news", Number: 1, BitRate: 1e6}, 5000, time.Unix(1, 0), sourceProperties{})
		for i, a := range args {
			if a == "-i" && (strings.HasPrefix(args[i+1], "-") || args[i+1] == "") || strings.ContainsAny(a, "\x00\n") {
				t.Errorf("%q became %q", text, args)
			}
		}
	})
}

// TestSplitRate checks that video, audio and headers fit into a channel's bit rate.
func TestSplitRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.Int64Range(int64(gatewayapi.MinRate), int64(gatewayapi.MaxRate)).Draw(t, "bit rate")
		video, audio := splitRate(all)
		if video <= 0 || audio <= 0 || video+audio > all*95/100 {
			t.Fatalf("%d is %d and %d", all, video, audio)
		}
	})
}

// TestPatternsDiffer checks that no colour or pitch equals that of the next number.
func TestPatternsDiffer(t *testing.T) {
	for n := range uint16(gatewayapi.MaxNumber) {
		if gatewayapi.PatternColour(n) == gatewayapi.PatternColour(n+1) || gatewayapi.PatternPitch(n) == gatewayapi.PatternPitch(n+1) {
			t.Errorf("%d and %d: colours %06x %06x, pitches %d %d", n, n+1, gatewayapi.PatternColour(n), gatewayapi.PatternColour(n+1), gatewayapi.PatternPitch(n), gatewayapi.PatternPitch(n+1))
		}
	}
}

// TestWindow checks that a window counts what was added within a second, and never more than
// permitted.
func TestWindow(t *testing.T) {
	var w slidingWindow
	for i, x := range []struct {
		clock  time.Duration
		n      int64
		fits   bool
		second int64
	}{
		{0, 60, true, 0},
		{50 * time.Millisecond, 41, false, 0},
		{100 * time.Millisecond, 40, true, 60},
		{950 * time.Millisecond, 1, false, 100},
		{1050 * time.Millisecond, 60, true, 100},
		{1060 * time.Millisecond, 1, false, 100},
		{1100 * time.Millisecond, 40, true, 100},
		{time.Hour, 100, true, 0},
		{time.Hour + time.Second, 0, true, 100},
		{time.Hour + 1100*time.Millisecond, 0, true, 0},
	} {
		if fits := w.add(x.clock, x.n, 100); fits != x.fits || w.second(x.clock) != x.second {
			t.Errorf("%d: %v at %v fits: %v, and the last second has %d; want %v and %d", i, x.n, x.clock, fits, w.second(x.clock), x.fits, x.second)
		}
	}
}

func TestWindowHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type added struct {
			at time.Duration
			n  int64
		}
		var w slidingWindow
		var all []added
		const most = 1000
		at := time.Duration(0)
		for range rapid.IntRange(1, 80).Draw(t, "times") {
			at += time.Duration(rapid.Int64Range(0, int64(700*time.Millisecond)).Draw(t, "later"))
			n := rapid.Int64Range(0, most).Draw(t, "n")
			if w.add(at, n, most) {
				all = append(all, added{at, n})
			}
			sum := int64(0) // nine tenths of a second, so that no slot is cut
			for _, x := range all {
				if at-x.at < time.Second-slot {
					sum += x.n
				}
			}
			if sum > most {
				t.Fatalf("%d within a second until %v", sum, at)
			}
		}
	})
}
