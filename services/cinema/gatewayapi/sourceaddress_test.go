package gatewayapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSourceAddress checks that a redacted source has no account, and only harmless parameters.
func TestSourceAddress(t *testing.T) {
	shows(t, redactSource, map[string]string{
		"":                                 "",
		"test:?size=640x360&keyframes=2s":  "test:?size=640x360&keyframes=2s",
		"file:/srv/a?b@c.mp4":              "file:/srv/a?b@c.mp4",
		"rtsp://10.0.0.7:554/live@1080p":   "rtsp://10.0.0.7:554/live@1080p",
		"rtsp://me:s@cret@10.0.0.7/a@b":    "rtsp://…@10.0.0.7/a@b",
		"rtsp://me@[2001:db8::1]:554/":     "rtsp://…@[2001:db8::1]:554/",
		"rtsp://10.0.0.7/live?token=s":     "rtsp://10.0.0.7/live?token=…",
		"rtsp://10.0.0.7/live?s&tcp":       "rtsp://10.0.0.7/live?…&…",
		"rtsp://10.0.0.7/live?c2VjcmV0==":  "rtsp://10.0.0.7/live?…",
		"rtsp://me:s@10.0.0.7/live?a=s=&b": "rtsp://…@10.0.0.7/live?a=…&…",
		"srt://:9000?passphrase=SECRET&latency=200000&streamid=#!::u=me": "srt://:9000?passphrase=…&latency=200000&streamid=…",
		"srt://:9000?latency=1;passphrase=SECRET":                        "srt://:9000?latency=…",
		"srt:9000?passphrase=SECRET":                                     "srt:…",
		"rtsp://me:12/s@10.0.0.7 /":                                      "rtsp://me:12/s@10.0.0.7 /", // may be a path
		"rtsp://me:s/cret@10.0.0.7/":                                     "rtsp:…",
		"rtsp://me:s?cret@10.0.0.7/":                                     "rtsp:…",
		"rtsp://me:12?cret@10.0.0.7/":                                    "rtsp:…",
		"rtsp://me:12#cret@10.0.0.7/":                                    "rtsp:…",
		"rtsp://me:s cret@10.0.0.7/":                                     "rtsp:…",
		"rtsp:me:secret@10.0.0.7":                                        "rtsp:…",
		"rtsp://admin:p@SS@host/live":                                    "rtsp://…@host/live",
		"rtsp://host:554/user=admin&password=SS&channel=1&stream=0.sdp":  "rtsp://host:554/…",
		"rtsp://host/user=admin_password=SS_channel=1.sdp?real_stream":   "rtsp://host/…?…",
		"rtsp://host/a/password=SS/b":                                    "rtsp://host/a/…/b",
		"rtmp://:1935/live/KEY":                                          "rtmp://:1935/live/…",
		"rtmp://:1935/live/KEY/":                                         "rtmp://:1935/live/…",
		"rtmp://:1935":                                                   "rtmp://:1935",
	})
}

// shows compares the results of show with the wanted ones, by input.
func shows(t *testing.T, show func(string) string, wanted map[string]string) {
	t.Helper()
	for text, want := range wanted {
		if got := show(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}

// TestRedactText checks that a program's output is unchanged except for sources, which are
// redacted.
func TestRedactText(t *testing.T) {
	shows(t, redactText, map[string]string{
		"[srt @ 0x55d0] Connection to srt://0.0.0.0:9000?mode=listener&passphrase=SECRET failed: Input/output error": "[srt @ 0x55d0] Connection to srt://0.0.0.0:9000?mode=listener&passphrase=… failed: Input/output error",
		"rtsp://me:secret@camera:554/x: Connection refused":                                                          "rtsp://…@camera:554/x: Connection refused",
		"Error opening input file rtsp://10.0.0.7/live?token=SECRET.":                                                "Error opening input file rtsp://10.0.0.7/live?token=….",
		"tcp://127.0.0.1:554?timeout=5000000: is it there?":                                                          "tcp://127.0.0.1:554?timeout=5000000: is it there?",
	})
}

// TestNoSecretIsShown checks that a secret in an account, a path, a parameter or a stream key is
// never shown, whatever surrounds it, however the address is printed, and wherever a program
// repeats it.
func TestNoSecretIsShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Z0-9]{1,4}[!$()*,;:'"=?/@-]{0,2}SECRET[!$()*,;:'"=?/@-]{0,2}[A-Z0-9]{0,4}`).Draw(t, "secret")
		without := func(cut string) string {
			return strings.Map(func(r rune) rune {
				if strings.ContainsRune(cut, r) {
					return -1
				}
				return r
			}, secret)
		}
		scheme := rapid.SampledFrom([]string{"rtsp", "srt", "rtmp", "udp"}).Draw(t, "scheme")
		source := scheme + rapid.SampledFrom([]string{
			"://me:" + without("/") + "@10.0.0.7/live", "://10.0.0.7/live?" + without("="), "://:9000?token=" + secret,
			"://:9000?latency=1&passphrase=" + secret + "&mode=listener", "://10.0.0.7:554/?tcp&key=" + secret + "&a=b",
			"://10.0.0.7/user=admin&password=" + without("/?@") + "&channel=1",
		}).Draw(t, "rest")
		if key := without("/?@"); scheme == "rtmp" && rapid.Bool().Draw(t, "a key") {
			source = "rtmp://:1935/live/" + key
		}
		address := SourceAddress(source)
		text, _ := address.MarshalText()
		var log bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&log, nil))
		logger.Info("x", "source", address, "stored", StoredSource(source), "channel", Channel{Source: StoredSource(source)}.Source)
		said := []string{"[in @ 0x1] " + source + ": Connection refused", "Failed to resolve hostname " + source[len(scheme)+3:]}
		for _, part := range address.secrets() {
			said = append(said, "wrong: "+part, "["+part+"]")
		}
		all := []string{string(text), log.String(), address.String()}
		for _, verb := range []string{"%v", "%s", "%q", "%+v", "%#v"} {
			all = append(all, fmt.Sprintf(verb, address), fmt.Sprintf(verb, Channel{Source: StoredSource(source)}), fmt.Sprintf(verb, &ChannelState{Channel: Channel{Source: StoredSource(source)}}))
		}
		for _, line := range said {
			all = append(all, address.RedactText(line))
		}
		for _, shown := range all {
			if strings.Contains(shown, "SECRET") {
				t.Fatalf("%s is shown as %s", source, shown)
			}
		}
	})
}

// TestFault checks the parameters of SRT.
func TestFault(t *testing.T) {
	for address, want := range map[string]string{
		"srt://:9000": "", "rtsp://h/?passphrase=x": "", "srt://:9000?passphrase=0123456789&pbkeylen=24&latency=200000&streamid=x": "",
		"srt://:9000?passphrase=012345678": "passphrase of 10 to 79", "srt://:9000?passphrase=": "passphrase of 10 to 79",
		"srt://:9000?passphrase=" + strings.Repeat("x", 79): "", "srt://:9000?passphrase=" + strings.Repeat("x", 80): "passphrase of 10 to 79",
		"srt://:9000?pbkeylen=17": "pbkeylen 16, 24 or 32", "srt://:9000?latency=1s": "latency in microseconds", "srt://:9000?streamid=" + strings.Repeat("x", 513): "streamid of at most 512",
	} {
		if got := SourceAddress(address).Fault(); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
