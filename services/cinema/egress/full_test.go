package egress

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestPortFull checks that the old channel of a viewer ends before the new one starts if the
// gateway's port has no room for both, and that a viewer for whom there is no room at all is
// sent to another gateway.
func TestPortFull(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p := w.joins("news")
	w.fill(2)
	if _, status, text := p.changes("sport"); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	w.until("the other sound", func() bool { return p.hears() == 2 })
	w.oneCrossing(0, []string{"news"}, []string{"sport", "news"}, []string{"sport"})
	p.continuous()
	w.fill(1)
	if _, status, text := p.changes("news"); status != http.StatusConflict {
		t.Errorf("a change that does not fit: %d %s", status, text)
	}
	w.until("the sound of before", func() bool { return p.hears() == 2 })
	w.mu.Lock()
	w.lines.Gateways = []gatewayapi.Gateway{{Name: "west", URL: w.url, Room: 5}, {Name: "east", URL: "https://east.example", Room: 3}}
	w.mu.Unlock()
	w.until("the lineup", func() bool { return w.otherGateway() != "" })
	res, text := w.ask(http.MethodPost, "/whep/news", "application/sdp", w.newPlayer(webrtc.SettingEngine{}).offer())
	if res.StatusCode != http.StatusTemporaryRedirect || res.Header.Get("Location") != "https://east.example/whep/news" {
		t.Errorf("%s to %q: %s", res.Status, res.Header.Get("Location"), text)
	}
}

// TestLateChange checks that a viewer that has been granted a channel and does not get it asks for it again,
// with and without make-before-break, and that the gateway counts and logs that.
func TestLateChange(t *testing.T) {
	for _, both := range []bool{false, true} {
		t.Run(fmt.Sprintf("make before break: %v", both), func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Burst, c.MakeBeforeBreak, c.Times.KeyFrame = false, both, keyFrameTest }, "news", "sport", "dark")
			w.studios["dark"].falls(true)
			p := w.joins("news")
			w.studios["sport"].mu.Lock()
			w.studios["sport"].skips = 1
			w.studios["sport"].mu.Unlock()
			if _, status, text := p.changes("sport"); status != http.StatusOK {
				t.Fatalf("%d %s", status, text)
			}
			w.until("the other sound", func() bool { return p.hears() == 2 })
			if n := metricOf(w, "sluice_cinema_late_changes_total"); n != 1 {
				t.Errorf("%v changes were late, want 1", n)
			}
			if _, status, _ := p.changes("dark"); status != http.StatusGatewayTimeout {
				t.Errorf("a channel without a key frame: %d", status)
			}
			if n := metricOf(w, "sluice_cinema_late_changes_total"); n != 1+changeAttempts {
				t.Errorf("%v changes were late, want %d", n, 1+changeAttempts)
			}
			text := w.log.text()
			for _, want := range []string{"channel=sport datagrams=0 attempt=1", "channel=dark", "attempt=2"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in the log:\n%s", want, text)
				}
			}
			p.continuous()
		})
	}
}

// TestBreakBeforeMake checks that without make-before-break a viewer never has two channels,
// even if it does not get the one that it requested.
func TestBreakBeforeMake(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.MakeBeforeBreak, c.Times.KeyFrame = false, keyFrameTest
	}, "news", "sport", "dark")
	w.studios["dark"].falls(true)
	p := w.joins("news")
	if _, status, text := p.changes("sport"); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	w.until("the other sound", func() bool { return p.hears() == 2 })
	if _, status, _ := p.changes("dark"); status != http.StatusGatewayTimeout {
		t.Errorf("a channel without a key frame: %d", status)
	}
	for _, channels := range w.wanted() {
		if len(channels) > 1 {
			t.Errorf("it wanted %v", channels)
		}
	}
	if _, status, text := p.changes("news"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	w.until("the first sound", func() bool { return p.hears() == 1 })
	p.continuous()
}
