package ingress

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/webrtc/v4"
	sample "github.com/pion/webrtc/v4/pkg/media"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// published runs a gateway with a channel that has a password.
func published(t *testing.T) (*Gateway, *sinks, *gatewayapi.Ingress) {
	t.Helper()
	g, all, c := start(t, nil)
	spec := waits("news", 7)
	spec.PublishHash = hashOf(t, "secret")
	if err := c.SetChannel(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return g, all, c
}

// TestWHIPTimesJump checks that a producer's timestamps are continuous after they have jumped.
func TestWHIPTimesJump(t *testing.T) {
	t.Parallel()
	pictures := h264(t)
	g, all, _ := published(t)
	p := newWHIPProducer(t, webrtc.MimeTypeH264)
	p.publish(t, g, "news", "secret")
	p.run(t, pictures)
	stamps := func() (out []uint32) {
		for _, x := range parsed(t, all.of(7).to(mediaTo)) {
			if n := len(out); x.Video() && (n == 0 || out[n-1] != x.Timestamp) {
				out = append(out, x.Timestamp)
			}
		}
		return out
	}
	until(t, "pictures", func() bool { return len(stamps()) > 20 })
	before := len(stamps())
	if err := p.layers[0].WriteSample(sample.Sample{Data: pictures[1], Duration: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	until(t, "pictures after the jump", func() bool { return len(stamps()) > before+20 })
	seen := stamps()
	for i, at := range seen[1:] {
		if d := int32(at - seen[i]); d < -media.VideoClock || d > media.VideoClock {
			t.Errorf("picture %d is %d after the one before", i+1, d)
		}
	}
}

// TestWHIP checks that a producer's packets are sent unchanged in the house format, that key
// frames are requested when the last one is old, and that the channel is down when the session
// ends.
func TestWHIP(t *testing.T) {
	t.Parallel()
	pictures := h264(t)
	g, all, c := published(t)
	p := newWHIPProducer(t, webrtc.MimeTypeH264)
	location := p.publish(t, g, "news", "secret")
	stop := p.run(t, pictures)
	until(t, "two key frames", func() bool { return state(t, g, "news").KeyFrames > 0 })
	s := state(t, g, "news")
	if fault(s) != "" || s.Producer != "127.0.0.1" {
		t.Errorf("%+v", s)
	}
	counts := map[string]int{}
	out := all.of(7).to(mediaTo)
	for i, x := range parsed(t, out) {
		switch {
		case out[i].b[0]&0x3f != 0 && !x.Control:
			t.Errorf("a header with more than it needs: %x", out[i].b[:12])
		case x.Video():
			counts["video"]++
		case x.Audio():
			counts["audio"]++
		}
	}
	if counts["video"] < 20 || counts["audio"] < 20 {
		t.Errorf("%v", counts)
	}
	viewer := netip.MustParseAddrPort("192.0.2.9:5000")
	if err := c.Burst(t.Context(), "news", gatewayapi.Burst{To: viewer}); err != nil {
		t.Fatal(err)
	}
	until(t, "the burst", func() bool { return len(all.of(7).to(viewer)) > 0 })
	if first := parsed(t, all.of(7).to(viewer)[:1])[0]; !first.KeyFrame() {
		t.Errorf("the burst begins with %+v", first)
	}
	stop()
	without := time.Now()
	p.asked.Store(0)
	p.run(t, [][]byte{pictures[1]}) // no further key frames
	until(t, "that a key frame is asked for", func() bool { return p.asked.Load() > 0 })
	until(t, "that it is asked for again", func() bool { return p.asked.Load() > 1 })
	if n, most := int(p.asked.Load()), 2+int(time.Since(without)/keyFrameInterval); n > most {
		t.Errorf("asked for %d times in %v, want at most %d", n, time.Since(without), most)
	}
	until(t, "a sender report", func() bool { return reports(t, all.of(7).to(mediaTo)) > 0 })
	ended(t, g, location)
	if s := state(t, g, "news"); s.Producer != "" {
		t.Errorf("%+v", s)
	}
	until(t, "down", func() bool { return state(t, g, "news").OnAir == gatewayapi.OnAirDown })
}

func reports(t *testing.T, out []sent) (n int) {
	t.Helper()
	for _, p := range parsed(t, out) {
		if p.Control {
			n++
		}
	}
	return n
}

// ended ends a session, twice.
func ended(t *testing.T, g *Gateway, location string) {
	t.Helper()
	for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, g.PublicURL()+location, nil)
		if err != nil {
			t.Fatal(err)
		}
		if status, _, body := do(t, req); status != want {
			t.Errorf("%d %s, want %d", status, body, want)
		}
	}
}

// TestWHIPEverywhere checks that a gateway that listens on all addresses is reached at each of
// them.
func TestWHIPEverywhere(t *testing.T) {
	t.Parallel()
	pictures := h264(t)
	g, all, c := start(t, func(cfg *Config) { cfg.Public = netip.MustParseAddrPort("0.0.0.0:0") })
	_, port, _ := strings.Cut(strings.TrimPrefix(g.PublicURL(), "http://"), ":")
	g.public.url = "http://127.0.0.1:" + port
	spec := waits("news", 7)
	spec.PublishHash = hashOf(t, "secret")
	if err := c.SetChannel(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	p := newWHIPProducer(t, webrtc.MimeTypeH264)
	p.publish(t, g, "news", "secret")
	p.run(t, pictures)
	until(t, "pictures", func() bool { return len(all.of(7).to(mediaTo)) > 20 })
}

// TestOneProducer checks that a channel has one producer, which another one replaces when it is
// silent. A channel with a new password, or a deleted one, has none.
func TestOneProducer(t *testing.T) {
	t.Parallel()
	pictures := h264(t)
	g, all, c := published(t)
	first := newWHIPProducer(t, webrtc.MimeTypeH264)
	first.publish(t, g, "news", "secret")
	stop := first.run(t, pictures)
	until(t, "live", func() bool { return state(t, g, "news").OnAir == gatewayapi.OnAirLive })
	second := newWHIPProducer(t, webrtc.MimeTypeH264)
	if status, _, body := post(t, g, "news", "secret", second.offer(t)); status != http.StatusConflict {
		t.Errorf("%d %s", status, body)
	}
	stop()
	until(t, "down", func() bool { return state(t, g, "news").OnAir == gatewayapi.OnAirDown })
	third := newWHIPProducer(t, webrtc.MimeTypeH264)
	third.publish(t, g, "news", "secret")
	before := len(all.of(7).to(mediaTo))
	third.run(t, pictures)
	until(t, "live again", func() bool {
		return state(t, g, "news").OnAir == gatewayapi.OnAirLive && len(all.of(7).to(mediaTo)) > before+20
	})
	if got := strings.Join(events(g, "news"), " "); !strings.Contains(got, "refused down live") {
		t.Errorf("events %q", got)
	}
	spec := waits("news", 7)
	spec.PublishHash = hashOf(t, "other")
	if err := c.SetChannel(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the session", func() bool { return g.channel("news").publisher() == nil })
	fourth := newWHIPProducer(t, webrtc.MimeTypeH264)
	fourth.publish(t, g, "news", "other")
	if err := c.DeleteChannel(t.Context(), "news"); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of all sessions", func() bool {
		g.public.mu.Lock()
		defer g.public.mu.Unlock()
		return len(g.public.sessions) == 0
	})
}

// TestWHIPRefuses checks the explanations to a producer that may not publish, or not what it
// offers.
func TestWHIPRefuses(t *testing.T) {
	g, _, c := published(t)
	h := newWHIPProducer(t, webrtc.MimeTypeH264).offer(t)
	vp8 := newWHIPProducer(t, webrtc.MimeTypeVP8).offer(t)
	for pt := range 128 { // a browser without H.264 does not offer it
		if strings.Contains(vp8, "a=rtpmap:"+strconv.Itoa(pt)+" H264/90000\r\n") {
			vp8 = strings.ReplaceAll(vp8, "a=rtpmap:"+strconv.Itoa(pt)+" H264/90000\r\n", "a=rtpmap:"+strconv.Itoa(pt)+" H263/90000\r\n")
		}
	}
	fetched := waits("film", 8)
	fetched.Source = gatewayapi.StoredSource("udp://127.0.0.1:" + strconv.Itoa(freePort(t)))
	for _, spec := range []gatewayapi.Channel{fetched, waits("nobody", 9)} {
		if err := c.SetChannel(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	request := func(method, path, kind, authorization, body string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), method, g.PublicURL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", kind)
		req.Header.Set("Authorization", authorization)
		return req
	}
	const sdpType, right = "application/sdp", "Bearer secret"
	for _, x := range []struct {
		name   string
		req    *http.Request
		status int
		want   string
	}{
		{"not SDP by its type", request("POST", "/whip/news", "application/json", right, h), 415, "application/sdp"},
		{"too long", request("POST", "/whip/news", sdpType, right, h+strings.Repeat("a=x\r\n", maxOffer/5)), 413, "64 KiB"},
		{"no such channel", request("POST", "/whip/sports", sdpType, right, h), 404, "does not have it"},
		{"a channel that is fetched", request("POST", "/whip/film", sdpType, right, h), 403, "fetches it"},
		{"a channel without a password", request("POST", "/whip/nobody", sdpType, right, h), 403, "no password"},
		{"no password", request("POST", "/whip/news", sdpType, "", h), 401, "Bearer PASSWORD"},
		{"another kind of password", request("POST", "/whip/news", sdpType, "Basic c2VjcmV0", h), 401, "Bearer PASSWORD"},
		{"a wrong password", request("POST", "/whip/news", sdpType, "Bearer wrong", h), 401, "wrong password"},
		{"a long password", request("POST", "/whip/news", sdpType, "Bearer "+strings.Repeat("x", 100), h), 401, "wrong password"},
		{"not SDP", request("POST", "/whip/news", sdpType, right, "hello"), 406, "not SDP"},
		{"no video", request("POST", "/whip/news", sdpType, right, "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"), 406, "want one of video"},
		{"many sections", request("POST", "/whip/news", sdpType, right, h+strings.Repeat("m=text 9 RTP/AVP 0\r\n", 9)), 406, "at most 4"},
		{"another codec", request("POST", "/whip/news", sdpType, right, vp8), 406, "42e01f"},
		{"a change of the offer", request("PATCH", "/whip/sessions/x", "application/trickle-ice-sdpfrag", "", ""), 405, ""},
		{"no such session", request("DELETE", "/whip/sessions/x", "", "", ""), 404, "never was"},
	} {
		t.Run(x.name, func(t *testing.T) {
			if status, _, body := do(t, x.req); status != x.status || !strings.Contains(body, x.want) {
				t.Errorf("%d %s; want %d with %q", status, body, x.status, x.want)
			}
		})
	}
	if s := g.channel("news").publisher(); s != nil {
		t.Errorf("%v is left", s.from)
	}
}

// TestWrongPasswords checks that further passwords of a source are not compared after some
// wrong ones.
func TestWrongPasswords(t *testing.T) {
	g, _, _ := published(t)
	offer := newWHIPProducer(t, webrtc.MimeTypeH264).offer(t)
	got := map[int]int{}
	for range maxWrongPerSource + 3 {
		status, _, _ := post(t, g, "news", "wrong", offer)
		got[status]++
	}
	if got[http.StatusUnauthorized] != maxWrongPerSource || got[http.StatusTooManyRequests] != 3 {
		t.Errorf("%v", got)
	}
	if status, _, body := post(t, g, "news", "secret", offer); status != http.StatusTooManyRequests {
		t.Errorf("the right one then: %d %s", status, body)
	}
	if n := g.totals.refused.Load(); n != maxWrongPerSource+4 {
		t.Errorf("%d were refused", n)
	}
}

// TestWrongPasswordsBehindProxy checks that a producer behind a trusted proxy does not lock out another one
// by wrong passwords, and that nobody else may name a client.
func TestWrongPasswordsBehindProxy(t *testing.T) {
	for _, c := range []struct {
		name    string
		proxies clientaddr.Proxies
		other   int
	}{
		{"trusted", clientaddr.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Header: clientaddr.Forwarded}, http.StatusCreated},
		{"trusted by another header", clientaddr.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}, http.StatusTooManyRequests},
		{"not trusted", clientaddr.Proxies{Header: clientaddr.Forwarded}, http.StatusTooManyRequests},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _, control := start(t, func(cfg *Config) { cfg.Proxies = c.proxies })
			spec := waits("news", 7)
			spec.PublishHash = hashOf(t, "secret")
			if err := control.SetChannel(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			offer := newWHIPProducer(t, webrtc.MimeTypeH264).offer(t)
			publish := func(by, password string) int {
				req := offerRequest(t, g, "news", password, offer)
				req.Header.Set("Forwarded", by)
				status, _, _ := do(t, req)
				return status
			}
			for range maxWrongPerSource {
				if status := publish(`for=192.0.2.1, for="198.51.100.7:4711"`, "wrong"); status != http.StatusUnauthorized {
					t.Fatalf("a wrong password: %d", status)
				}
			}
			if status := publish("for=192.0.2.2, for=198.51.100.7", "wrong"); status != http.StatusTooManyRequests {
				t.Errorf("one more of the same client: %d", status)
			}
			if status := publish("for=198.51.100.7, for=198.51.100.8", "secret"); status != c.other {
				t.Errorf("another client: %d, want %d", status, c.other)
			}
		})
	}
}

// TestAnyOrigin checks that pages of other sites may publish, which browsers ask first.
func TestAnyOrigin(t *testing.T) {
	g, _, _ := published(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, g.PublicURL()+"/whip/news", nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if h := res.Header; res.StatusCode != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") ||
		h.Get("Access-Control-Expose-Headers") != "Location" {
		t.Errorf("%d %v", res.StatusCode, h)
	}
}

// TestProducerEndsBySilence checks that a session lasts while its producer sends, and ends
// after some silence.
func TestProducerEndsBySilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, over := context.WithCancelCause(t.Context())
		s := &session{ch: &channel{log: slog.New(slog.DiscardHandler)}, cancel: over, since: time.Now()}
		done := make(chan struct{})
		go func() { defer close(done); s.watch(ctx) }()
		for time.Since(s.since) < 48*time.Hour {
			s.touch()
			if pause.For(producerTimeout/2, "it sends"); ctx.Err() != nil {
				t.Fatalf("it was ended while it sent, after %v: %v", time.Since(s.since), context.Cause(ctx))
			}
		}
		last := s.receivedAt
		<-done
		if took := time.Since(last); took < producerTimeout || took > producerTimeout+2*time.Second || !strings.Contains(context.Cause(ctx).Error(), "nothing has come") {
			t.Errorf("it was ended %v after its last packet: %v", took, context.Cause(ctx))
		}
	})
}

// TestProducerDoesNotCome checks that a session whose producer never sends ends.
func TestProducerDoesNotCome(t *testing.T) {
	s := &session{since: time.Unix(0, 0)}
	for after, over := range map[time.Duration]bool{connectTimeout: false, connectTimeout + 1: true} {
		if why := s.overdue(time.Unix(0, 0).Add(after)); (why != "") != over {
			t.Errorf("after %v: %q", after, why)
		}
	}
	s.receivedAt = time.Unix(100, 0)
	for at, over := range map[time.Time]bool{s.receivedAt.Add(producerTimeout): false, s.receivedAt.Add(producerTimeout + 1): true} {
		if why := s.overdue(at); (why != "") != over {
			t.Errorf("at %v: %q", at, why)
		}
	}
	now := time.Now()
	connecting := &session{since: now}
	for at, s := range map[time.Duration]*session{0: {receivedAt: now}, connectGrace: connecting} {
		if s.silent(now.Add(at+silenceTimeout)) || !s.silent(now.Add(at+silenceTimeout+1)) {
			t.Errorf("%+v is silent at the wrong time", s)
		}
	}
}
