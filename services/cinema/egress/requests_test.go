package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestWrongRequests checks that invalid requests are refused with the field and what would be
// valid.
func TestWrongRequests(t *testing.T) {
	w := newWorld(t, nil, "news", "vault")
	w.studios["vault"].protected = true
	w.limits.viewers = 1
	offer := w.newPlayer(webrtc.SettingEngine{}).offer()
	p := w.joins("news")
	const sdp, js = "application/sdp", "application/json"
	session, channel := p.session, p.session+"/channel"
	nothing := "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
	for i, c := range []struct {
		name, method, path, kind, body string
		header                         []string
		status                         int
		field, says                    string
	}{
		{"a method that is none", "GET", "/whep/news", "", "", nil, 405, "", "want POST"},
		{"trickle of candidates", "PATCH", session, "application/trickle-ice-sdpfrag", "a=x", nil, 405, "", "want DELETE"},
		{"a look at a session", "GET", session, "", "", nil, 405, "", "want DELETE"},
		{"a change by POST", "POST", channel, js, `{"channel":"news"}`, nil, 405, "", "want PUT"},
		{"an offer without a type", "POST", "/whep/news", "", offer, nil, 415, "Content-Type", "application/sdp"},
		{"an offer as JSON", "POST", "/whep/news", js, `{"sdp":""}`, nil, 415, "Content-Type", "application/sdp"},
		{"no offer", "POST", "/whep/news", sdp, "", nil, 400, "body", "empty"},
		{"an offer that is none", "POST", "/whep/news", sdp, "hello", nil, 400, "body", "not an SDP offer"},
		{"an offer of nonsense", "POST", "/whep/news", sdp, "v=0\r\nm=video what\r\n", nil, 400, "body", "not an SDP offer"},
		{"an offer of nothing", "POST", "/whep/news", sdp, nothing, nil, 400, "body", "0 media sections"},
		{"an offer of too much", "POST", "/whep/news", sdp, nothing + strings.Repeat("m=video 9 UDP/TLS/RTP/SAVPF 96\r\n", 9), nil, 400, "body", "want 1 to 8"},
		{"an offer of too much in other lines", "POST", "/whep/news", sdp, nothing + strings.Repeat("m=video 9 UDP/TLS/RTP/SAVPF 96\r", 9), nil, 400, "body", "9 media sections"},
		{"an offer of sound only", "POST", "/whep/news", sdp, section(offer, "audio"), nil, 422, "body", "receives no video"},
		{"an offer of another codec", "POST", "/whep/news", sdp, strings.NewReplacer("H264/90000", "H263/90000").Replace(offer), nil, 422, "body", "H.264"},
		{"an offer that sends", "POST", "/whep/news", sdp, strings.ReplaceAll(offer, "a=recvonly", "a=sendonly"), nil, 422, "body", "recvonly"},
		{"an offer that is too long", "POST", "/whep/news", sdp, offer + strings.Repeat("a=x\r\n", 16<<10), nil, 413, "body", "65536 bytes"},
		{"a channel that is not there", "POST", "/whep/nowhere", sdp, offer, nil, 429, "", "1 viewers here already"},
		{"a channel whose name is none", "POST", "/whep/%2e%2e%2fetc", sdp, offer, nil, 400, "channel", "letters, digits"},
		{"a password that is none", "POST", "/whep/news", sdp, offer, []string{"Authorization", "Basic YTpi"}, 401, "Authorization", "Bearer"},
		{"an empty password", "POST", "/whep/news", sdp, offer, []string{"Authorization", "Bearer "}, 401, "Authorization", "Bearer"},
		{"a password that is too long", "POST", "/whep/news", sdp, offer, []string{"Authorization", "Bearer " + strings.Repeat("x", 73)}, 401, "Authorization", "72 bytes"},
		{"a session that is not there", "DELETE", "/whep/sessions/" + strings.Repeat("0", 32), "", "", nil, 404, "session", "no such session"},
		{"a change of none", "PUT", "/whep/sessions/x/channel", js, `{"channel":"news"}`, nil, 404, "session", "no such session"},
		{"a change without a type", "PUT", channel, "text/plain", `{"channel":"news"}`, nil, 415, "Content-Type", "application/json"},
		{"a change that is not JSON", "PUT", channel, js, `news`, nil, 400, "body", "want {"},
		{"a change of two", "PUT", channel, js, `{"channel":"news"}{"channel":"news"}`, nil, 400, "body", "more than one"},
		{"a change with more in it", "PUT", channel, js, `{"channel":"news","password":"x"}`, nil, 400, "body", "password"},
		{"a change to nothing", "PUT", channel, js, `{}`, nil, 400, "channel", "letters, digits"},
		{"a change to a number", "PUT", channel, js, `{"channel":7}`, nil, 400, "body", "want {"},
		{"a change to what is not there", "PUT", channel, js, `{"channel":"nowhere"}`, nil, 404, "channel", `no channel "nowhere"`},
		{"a change that is too long", "PUT", channel, js, `{"channel":"` + strings.Repeat("x", 5000) + `"}`, nil, 413, "body", "4096 bytes"},
		{"a protected channel", "PUT", channel, js, `{"channel":"vault"}`, nil, 401, "Authorization", "wants its password"},
		{"a wrong password", "PUT", channel, js, `{"channel":"vault"}`, []string{"Authorization", "Bearer x"}, 401, "Authorization", "wants its password"},
		{"a page that is not there", "GET", "/admin", "", "", nil, 404, "", "nothing at"},
		{"a file outside", "GET", "/..%2fsite.go", "", "", nil, 404, "", "nothing at"},
		{"a folder", "GET", "/site", "", "", nil, 404, "", "nothing at"},
		{"writing to the site", "POST", "/", "", "", nil, 405, "", "want GET"},
		{"writing the lineup", "PUT", "/channels", js, "{}", nil, 405, "", "want GET"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
			req.RemoteAddr = fmt.Sprintf("192.0.2.%d:5000", i+1)
			if strings.Contains(c.says, "already") {
				req.RemoteAddr = "127.0.0.1:5000"
			}
			if c.kind != "" {
				req.Header.Set("Content-Type", c.kind)
			}
			for i := 0; i+1 < len(c.header); i += 2 {
				req.Header.Set(c.header[i], c.header[i+1])
			}
			res := httptest.NewRecorder()
			w.Handler().ServeHTTP(res, req)
			var r refusal
			if err := json.Unmarshal(res.Body.Bytes(), &r); err != nil || res.Code != c.status || r.Status != c.status || r.Field != c.field || !strings.Contains(r.Detail, c.says) ||
				res.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %s, want %d, %q and %q", res.Code, res.Body, c.status, c.field, c.says)
			}
			if (res.Code == 401) != (res.Header().Get("WWW-Authenticate") != "") {
				t.Error("the header WWW-Authenticate")
			}
		})
	}
	if n := w.count(); n != 1 {
		t.Errorf("%d viewers", n)
	}
	if ports := len(w.ports); ports != 1 {
		t.Errorf("%d ports are in use", ports)
	}
	if _, status, text := p.changes("vault", "Authorization", "Bearer "+w.password); status != http.StatusOK {
		t.Errorf("with the password: %d %s", status, text)
	}
	p.continuous()
}

// section returns an offer with only one of its media sections.
func section(offer, kind string) string {
	parts := strings.Split(offer, "m=")
	for i, s := range parts[1:] {
		if strings.HasPrefix(s, kind) {
			return strings.Replace(parts[0], "BUNDLE 0 1", fmt.Sprintf("BUNDLE %d", i), 1) + "m=" + s
		}
	}
	return ""
}

// TestFlood checks that a viewer who sends a thousand requests a second harms only itself.
func TestFlood(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p := w.joins("news")
	h := w.Handler()
	ask := func(from string) int {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/channels", nil)
		req.RemoteAddr = from
		res := httptest.NewRecorder()
		h.ServeHTTP(res, req)
		return res.Code
	}
	answers := map[int]int{}
	for range 5000 {
		answers[ask("198.51.100.7:99")]++
	}
	if answers[200] < maxRequestBurst || answers[200] > maxRequestBurst+100 || answers[200]+answers[429] != 5000 {
		t.Errorf("%v", answers)
	}
	for range 3 * maxRequestRate {
		answers[ask("[2001:db8::1]:5")]++
		answers[ask("[2001:db8::2]:5")]++
	}
	if n := ask("[2001:db8:0:1::1]:5"); n != 200 || answers[429] < 4000 {
		t.Errorf("a neighbour is answered %d", n)
	}
	if n := ask("203.0.113.5:1"); n != 200 {
		t.Errorf("another one is answered %d", n)
	}
	if _, status, text := p.changes("sport"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	p.continuous()
}

// TestWrongPasswords checks that an address that guesses passwords reaches the controller with
// few of them, and that other addresses and right passwords are not counted.
func TestWrongPasswords(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Proxies = clientaddr.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	}, "news", "vault")
	w.studios["vault"].protected = true
	p, q := w.joins("news", "X-Forwarded-For", "192.0.2.1"), w.joins("news", "X-Forwarded-For", "192.0.2.2")
	guesses, errP := w.viewer(path.Base(p.session))
	knows, errQ := w.viewer(path.Base(q.session))
	if err := errors.Join(errP, errQ); err != nil {
		t.Fatal(err)
	}
	answers := map[int]int{}
	for i := range 2 * maxWrongPasswords {
		_, err := guesses.change("vault", fmt.Sprint("guess", i))
		answers[asRefusal(controllerRefusal(err, "vault")).Status]++
	}
	if answers[http.StatusUnauthorized] != maxWrongPasswords || answers[http.StatusTooManyRequests] != maxWrongPasswords {
		t.Errorf("%v", answers)
	}
	asked := 0
	for _, channels := range w.wanted() {
		if channels[0] == "vault" {
			asked++
		}
	}
	if asked != maxWrongPasswords {
		t.Errorf("the controller was asked %d times", asked)
	}
	for i := range 2 * maxWrongPasswords {
		if _, err := knows.change([]string{"vault", "news"}[i%2], w.password); err != nil {
			t.Fatalf("change %d from another address: %v", i, err)
		}
	}
	q.continuous()
	now := time.Now()
	one := netip.MustParseAddr("192.0.2.9")
	for i := range maxWrongPasswords + 1 {
		if err := w.limits.checkWrongPasswords(one, now); (err != nil) != (i == maxWrongPasswords) {
			t.Errorf("guess %d: %v", i, err)
		}
		w.limits.countWrongPassword(one, now)
	}
	if err := w.limits.checkWrongPasswords(one, now.Add(wrongPasswordWindow+1)); err != nil {
		t.Errorf("a while later: %v", err)
	}
}

// TestAddressesAreForgotten checks that remembered addresses are bounded and expire.
func TestAddressesAreForgotten(t *testing.T) {
	l, now := newClientLimits(&Config{MaxPerAddress: 1}), time.Now()
	for i := range maxAddresses + 100 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		if ok := l.request(a, now); ok != (i < maxAddresses) {
			t.Fatalf("address %d: %v", i, ok)
		}
	}
	one := netip.MustParseAddr("192.0.2.1")
	if l.request(one, now.Add(usageIdleTime/2)) {
		t.Error("there is room before anybody is forgotten")
	}
	if !l.request(one, now.Add(2*usageIdleTime)) || l.byAddress.Len() != 1 {
		t.Errorf("%d addresses are remembered", l.byAddress.Len())
	}
	if l.join(one, now) != nil || l.join(one, now) == nil {
		t.Error("an address has one viewer")
	}
}

// TestFullAndDraining checks that a full or draining gateway sends viewers to one with room.
func TestFullAndDraining(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxViewers = 1 }, "news", "sport")
	p := w.joins("news")
	offer := w.newPlayer(webrtc.SettingEngine{}).offer()
	ask := func() (*http.Response, string) {
		return w.ask(http.MethodPost, "/whep/sport", "application/sdp", offer)
	}
	if res, text := ask(); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "no other has room") || res.Header.Get("Retry-After") == "" {
		t.Errorf("%s: %s", res.Status, text)
	}
	w.mu.Lock()
	w.lines.Gateways = []gatewayapi.Gateway{
		{Name: "west", Room: 99, URL: w.url}, {Name: "full", URL: "http://192.0.2.1"}, {Name: "small", Room: 1, URL: "http://192.0.2.2"}, {Name: "east", Room: 7, URL: "http://192.0.2.3:8445/"},
	}
	w.mu.Unlock()
	w.until("the gateways", func() bool { return len(w.lineup.Load().Gateways) == 4 })
	if res, text := ask(); res.StatusCode != http.StatusTemporaryRedirect || res.Header.Get("Location") != "http://192.0.2.3:8445/whep/sport" {
		t.Errorf("%s: %s", res.Status, text)
	}
	light := w.watches("sport").answered(func(t playerMessage) bool { return t.Refused != nil })
	if light.Refused.Status != http.StatusServiceUnavailable || light.Location != "http://192.0.2.3:8445/" {
		t.Errorf("by WebSocket: %+v, to %q", light.Refused, light.Location)
	}
	w.ask(http.MethodDelete, p.session, "", "")
	w.until("room", func() bool { return w.count() == 0 })
	drain := func(on string) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/drain", strings.NewReader(`{"on":`+on+`}`))
		w.server.ServeHTTP(httptest.NewRecorder(), req)
	}
	drain("true")
	if res, text := ask(); res.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("%s: %s", res.Status, text)
	}
	drain("false")
	w.joins("sport")
}

// TestDrainingLeavesViewers checks that a draining gateway continues for its present viewers.
func TestDrainingLeavesViewers(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p := w.joins("news")
	w.server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/drain", strings.NewReader(`{"on":true}`)))
	if _, status, text := p.changes("sport"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	w.until("the sound", func() bool { return p.hears() == 2 })
	p.continuous()
}

// TestViewerThatDoesNotConnect checks that such a viewer and its port are soon released.
func TestViewerThatDoesNotConnect(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Times.Connect = 200 * time.Millisecond }, "news")
	res, text := w.ask(http.MethodPost, "/whep/news", "application/sdp", w.newPlayer(webrtc.SettingEngine{}).offer())
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %s", res.Status, text)
	}
	w.until("nobody", func() bool { return w.count() == 0 })
	w.until("the controller to know", func() bool { wants := w.wanted(); return len(wants[len(wants)-1]) == 0 })
}

// TestPreflight checks that browsers may use the gateway from other sites.
func TestPreflight(t *testing.T) {
	w := newWorld(t, nil, "news")
	res, _ := w.ask(http.MethodOptions, "/whep/news", "", "", "Origin", "https://other.example", "Access-Control-Request-Method", "POST")
	h := res.Header
	if res.StatusCode != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") ||
		h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%s %v", res.Status, h)
	}
}

// TestSite checks the site's files, and that its policy permits nothing else.
func TestSite(t *testing.T) {
	w := newWorld(t, nil, "news")
	for path, kind := range map[string]string{
		"/": "text/html", "/live": "text/html", "/index.html": "text/html", "/style.css": "text/css", "/icon.svg": "image/svg+xml",
		"/app.js": "text/javascript", "/player.js": "text/javascript", "/whep.js": "text/javascript", "/session.js": "text/javascript", "/live.js": "text/javascript", "/grid.js": "text/javascript", "/remote.js": "text/javascript", "/frames.js": "text/javascript",
	} {
		res, text := w.ask(http.MethodGet, path, "", "")
		if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), kind) || len(text) < 100 {
			t.Errorf("%s: %s, %s, %d bytes", path, res.Status, res.Header.Get("Content-Type"), len(text))
		}
		policy := strings.Split(res.Header.Get("Content-Security-Policy"), "; ")
		if !slices.Contains(policy, "default-src 'none'") || !slices.Contains(policy, "script-src 'self'") || !slices.Contains(policy, "connect-src 'self' https: wss: http: ws:") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if strings.Contains(text, "http://") && !strings.Contains(text, "http://www.w3.org/2000/svg") || strings.Contains(text, "https://") {
			t.Errorf("%s names another site", path)
		}
	}
}

// TestBehindNAT checks that answers of a gateway behind NAT name the addresses of the configuration, which
// the machine does not have, and that viewers whom NAT leads to the machine are served.
func TestBehindNAT(t *testing.T) {
	for name, public := range map[string]string{"at one address": "127.0.0.1:1", "everywhere": "[::]:1"} {
		t.Run(name, func(t *testing.T) {
			outside := []netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:0"), netip.MustParseAddrPort("[2001:db8::7]:0")}
			w := newWorld(t, func(c *Config) { c.Public, c.Media = public, outside }, "news")
			p := w.newPlayer(webrtc.SettingEngine{})
			res, answer := w.ask(http.MethodPost, "/whep/news", "application/sdp", p.offer())
			var got []string
			for line := range strings.Lines(answer) {
				if f := strings.Fields(line); strings.HasPrefix(line, "a=candidate:") && !slices.Contains(got, f[4]) {
					got = append(got, f[4])
				}
			}
			if strings.Join(got, " ") != "203.0.113.7 2001:db8::7" {
				t.Fatalf("%s: addresses %v", res.Status, got)
			}
			var inside netip.AddrPort
			for _, a := range w.transport.mux.GetListenAddresses() {
				if at := a.(*net.UDPAddr).AddrPort(); at.Addr().Unmap() == netip.MustParseAddr("127.0.0.1") {
					inside = at
				}
			}
			p.accept(res, strings.ReplaceAll(answer, "203.0.113.7 0 ", fmt.Sprintf("127.0.0.1 %d ", inside.Port())))
			w.until("pictures", func() bool { return len(p.packets("video")) > 0 })
		})
	}
	if text := newWorld(t, func(c *Config) {
		c.Public, c.Media = "127.0.0.1:1", []netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:0")}
	}, "news").log.text(); !strings.Contains(text, "NAT must forward") {
		t.Errorf("the log does not say so: %s", text)
	}
}
