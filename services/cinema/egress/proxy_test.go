package egress

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/internal/clientaddr"
)

var onlyProxy = clientaddr.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32"), netip.MustParsePrefix("::1/128")}}

// from returns a transport that dials from a host of the loopback network.
func from(host string) *http.Transport {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	return &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}
}

// TestBehindProxy checks that each client behind a trusted reverse proxy has its own limits,
// whatever it claims, and that all clients of another proxy share them.
func TestBehindProxy(t *testing.T) {
	for name, c := range map[string]struct {
		proxies clientaddr.Proxies
		other   int
	}{
		"trusted":     {onlyProxy, http.StatusCreated},
		"not trusted": {clientaddr.Proxies{}, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(cfg *Config) { cfg.MaxPerAddress, cfg.Proxies = 1, c.proxies }, "news")
			to, err := url.Parse(w.url)
			if err != nil {
				t.Fatal(err)
			}
			proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: from("127.0.0.9"), Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"] // as nginx does
				r.SetXForwarded()
				r.SetURL(to)
			}})
			t.Cleanup(proxy.Close)
			offer := w.newPlayer(webrtc.SettingEngine{}).offer()
			ask := func(host, says string, want int) {
				t.Helper()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy.URL+"/whep/news", strings.NewReader(offer))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/sdp")
				if says != "" {
					r.Header.Set("X-Forwarded-For", says)
				}
				res, err := from(host).RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if text, _ := io.ReadAll(res.Body); res.StatusCode != want {
					t.Errorf("%s, who says %q: %s, want %d: %s", host, says, res.Status, want, text)
				}
			}
			ask("127.0.0.2", "", http.StatusCreated)
			ask("127.0.0.2", "203.0.113.1", http.StatusTooManyRequests)
			ask("127.0.0.3", "127.0.0.2", c.other)
		})
	}
}

// TestBehindPrefix checks that a viewer behind a proxy that has the gateway below a prefix reaches its
// session by the address that the gateway answers, and that addresses may end with a slash. The site's
// pages have only relative addresses.
func TestBehindPrefix(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	to, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.StripPrefix("/tv/one", httputil.NewSingleHostReverseProxy(to)))
	t.Cleanup(proxy.Close)
	ask := func(method, at, kind, body string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", kind)
		res, err := from("127.0.0.1").RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(text)
	}
	for _, base := range []string{w.url, proxy.URL + "/tv/one"} {
		for _, slash := range []string{"", "/"} {
			p := w.newPlayer(webrtc.SettingEngine{})
			at := base + "/whep/news" + slash
			res, answer := ask(http.MethodPost, at, "application/sdp", p.offer())
			if res.StatusCode != http.StatusCreated {
				t.Fatalf("%s: %s %s", at, res.Status, answer)
			}
			p.accept(res, answer)
			session, err := res.Request.URL.Parse(res.Header.Get("Location"))
			if err != nil {
				t.Fatal(err)
			}
			if res, text := ask(http.MethodPut, session.String()+"/channel"+slash, "application/json", `{"channel":"sport"}`); res.StatusCode != http.StatusOK {
				t.Errorf("change at %s: %s %s", session, res.Status, text)
			}
			if res, text := ask(http.MethodDelete, session.String()+slash, "", ""); res.StatusCode != http.StatusNoContent {
				t.Errorf("end at %s: %s %s", session, res.Status, text)
			}
		}
		for _, page := range []string{"/", "/live"} {
			res, text := ask(http.MethodGet, base+page, "", "")
			if found := regexp.MustCompile(`(?:href|src)="/[^"]*"`).FindString(text); res.StatusCode != http.StatusOK || found != "" {
				t.Errorf("%s has %s: %s", base+page, found, res.Status)
			}
		}
	}
	if res, _ := ask(http.MethodGet, w.url+"/live/", "", ""); res.Header.Get("Location") != "../live" {
		t.Errorf("%s to %q", res.Status, res.Header.Get("Location"))
	}
}

// TestConnectionsAreBounded checks that connections beyond the limit of an address are closed,
// and that a trusted proxy may have one more for each viewer.
func TestConnectionsAreBounded(t *testing.T) {
	for host, most := range map[string]int32{"127.0.0.1": maxConnections, "127.0.0.9": maxConnections + 20, "::1": maxConnections + 20} {
		t.Run(host, func(t *testing.T) { connectionsAreBounded(t, host, most) })
	}
}

func connectionsAreBounded(t *testing.T, host string, most int32) {
	at := "127.0.0.1:0"
	if strings.Contains(host, ":") {
		at = "[::1]:0"
	}
	raw, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	l := &limitedListener{raw, newClientLimits(&Config{MaxPerAddress: 1, MaxViewers: 20, Proxies: onlyProxy})}
	defer l.Close()
	var accepted atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all []net.Conn
		defer func() {
			for _, c := range all {
				c.Close()
			}
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all = append(all, c)
			accepted.Add(1)
		}
	}()
	dial := func() net.Conn {
		c, err := from(host).DialContext(t.Context(), "tcp", raw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range most {
		dial()
	}
	for range 10 {
		c := dial()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("one connection more lives: %v", err)
		}
	}
	if n := accepted.Load(); n != most {
		t.Errorf("%d connections, want %d", n, most)
	}
	l.Close()
	<-done
}
