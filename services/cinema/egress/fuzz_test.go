package egress

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/kit/control"
)

// chromium is an offer of Chromium, without its long parts.
const chromium = "v=0\r\no=- 4611731400430051336 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n" +
	"m=video 9 UDP/TLS/RTP/SAVPF 96 97 103 104\r\nc=IN IP4 0.0.0.0\r\na=rtcp:9 IN IP4 0.0.0.0\r\na=ice-ufrag:4ZcD\r\na=ice-pwd:2/1muCWoOi3uLifh0NuRHlHJ\r\na=ice-options:trickle\r\n" +
	"a=fingerprint:sha-256 75:74:5A:A6:A4:E5:52:F4:A7:67:4C:01:C7:EE:91:3F:21:3D:A2:E3:53:7B:6F:30:86:F2:30:AA:65:FB:04:24\r\na=setup:actpass\r\na=mid:0\r\n" +
	"a=extmap:1 urn:ietf:params:rtp-hdrext:toffset\r\na=recvonly\r\na=rtcp-mux\r\na=rtcp-rsize\r\na=rtpmap:96 VP8/90000\r\na=rtcp-fb:96 nack pli\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\n" +
	"a=rtpmap:103 H264/90000\r\na=rtcp-fb:103 nack\r\na=rtcp-fb:103 nack pli\r\na=fmtp:103 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f\r\na=rtpmap:104 rtx/90000\r\na=fmtp:104 apt=103\r\n" +
	"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:4ZcD\r\na=ice-pwd:2/1muCWoOi3uLifh0NuRHlHJ\r\n" +
	"a=fingerprint:sha-256 75:74:5A:A6:A4:E5:52:F4:A7:67:4C:01:C7:EE:91:3F:21:3D:A2:E3:53:7B:6F:30:86:F2:30:AA:65:FB:04:24\r\na=setup:actpass\r\na=mid:1\r\na=recvonly\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\na=fmtp:111 minptime=10;useinbandfec=1\r\n"

// still returns a gateway that does not run, for tests without viewers.
func still(t testing.TB) *Gateway {
	g, err := New(Config{
		Name: "west", Log: slog.New(slog.DiscardHandler), Data: netip.MustParseAddr("127.0.0.1"), Ports: control.PortRange{First: 30000, Last: 34095},
		Media: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, MaxViewers: 10, MaxPerAddress: 10, Controller: &world{}, Times: DefaultTimes(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	return g
}

// TestChromiumsOffer checks that a browser's offer is answered.
func TestChromiumsOffer(t *testing.T) {
	g := still(t)
	p, err := g.transport.accept(chromium, newViewer(g, netip.Addr{}, "whep", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, want := range []string{"a=ice-lite", "m=video 9 UDP/TLS/RTP/SAVPF 103", "profile-level-id=42e01f", "opus/48000/2", "a=sendonly"} {
		if !strings.Contains(p.answer.SDP, want) {
			t.Errorf("no %q in %s", want, p.answer.SDP)
		}
	}
}

// FuzzOffer checks that any offer is answered or refused.
func FuzzOffer(f *testing.F) {
	f.Add(chromium)
	f.Add("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=recvonly\r\n")
	f.Add(strings.Replace(chromium, "a=setup:actpass", "a=setup:passive", 1))
	f.Add(strings.ReplaceAll(chromium, "\r\n", "\r"))
	f.Add(strings.Replace(chromium, "a=recvonly", "a=inactive", 1))
	g := still(f)
	f.Fuzz(func(t *testing.T, offer string) {
		v := newViewer(g, netip.Addr{}, "whep", nil)
		p, err := g.transport.accept(offer, v)
		if err == nil {
			if _, err := p.start(t.Context()); err != nil && errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			p.close()
		}
		v.tasks.Stop()
	})
}

// FuzzRequest checks that any request is refused, or is for a page of the site.
func FuzzRequest(f *testing.F) {
	f.Add("PUT", "/whep/sessions/0/channel", "application/json", `{"channel":"news"}`)
	f.Add("POST", "/whep/news", "application/sdp", "v=0")
	f.Add("GET", "/live", "", "")
	g := still(f)
	h := g.Handler()
	f.Fuzz(func(t *testing.T, method, path, kind, body string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/"+strings.TrimPrefix(path, "/"), strings.NewReader(body))
		if err != nil {
			t.Skip()
		}
		req.RemoteAddr = "192.0.2.1:5"
		g.limits = newClientLimits(&Config{MaxPerAddress: 10})
		req.Header.Set("Content-Type", kind)
		res := httptest.NewRecorder()
		h.ServeHTTP(res, req)
		if res.Code >= 500 && res.Code != http.StatusServiceUnavailable {
			t.Errorf("%d %s", res.Code, res.Body)
		}
	})
}
