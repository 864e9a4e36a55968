package gatewayapi

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestRedactSource checks that a redacted source has no account, and only harmless parameters.
func TestRedactSource(t *testing.T) {
	shows(t, RedactSource, map[string]string{
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
	shows(t, RedactText, map[string]string{
		"[srt @ 0x55d0] Connection to srt://0.0.0.0:9000?mode=listener&passphrase=SECRET failed: Input/output error": "[srt @ 0x55d0] Connection to srt://0.0.0.0:9000?mode=listener&passphrase=… failed: Input/output error",
		"rtsp://me:secret@camera:554/x: Connection refused":                                                          "rtsp://…@camera:554/x: Connection refused",
		"Error opening input file rtsp://10.0.0.7/live?token=SECRET.":                                                "Error opening input file rtsp://10.0.0.7/live?token=….",
		"tcp://127.0.0.1:554?timeout=5000000: is it there?":                                                          "tcp://127.0.0.1:554?timeout=5000000: is it there?",
	})
}

// TestNoSecretIsShown checks that a secret in an account or a parameter is never shown,
// whatever surrounds it.
func TestNoSecretIsShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Z0-9]{1,4}[!$()*,;:'"=?/-]{0,2}SECRET[!$()*,;:'"=?/-]{0,2}[A-Z0-9]{0,4}`).Draw(t, "secret")
		scheme := rapid.SampledFrom([]string{"rtsp", "srt", "rtmp", "udp"}).Draw(t, "scheme")
		source := scheme + rapid.SampledFrom([]string{
			"://me:" + strings.ReplaceAll(secret, "/", "") + "@10.0.0.7/live", "://10.0.0.7/live?" + strings.ReplaceAll(secret, "=", ""), "://:9000?token=" + secret,
			"://:9000?latency=1&passphrase=" + secret + "&mode=listener", "://10.0.0.7:554/?tcp&key=" + secret + "&a=b",
		}).Draw(t, "rest")
		for _, shown := range []string{RedactSource(source), RedactText("[in @ 0x1] " + source + ": Connection refused")} {
			if strings.Contains(shown, "SECRET") {
				t.Fatalf("%s is shown as %s", source, shown)
			}
		}
	})
}
