package ingress

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"
)

// TestSimulcastAnswer checks the answers to offers of several layers. They accept one picture
// without simulcast. OBS refuses such an answer, so its answer names all layers, with the header
// extension that identifies them.
func TestSimulcastAnswer(t *testing.T) {
	const obs = "User-Agent: Mozilla/5.0 (OBS-Studio/32.0.1; Linux x86_64; en-US)"
	for _, c := range []struct{ file, agent, simulcast, rids, extension string }{
		{"chromium-simulcast.sdp", "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0.0.0", "", "", ""},
		{"obs-simulcast.sdp", "GStreamer souphttpsrc", "", "", ""},
		{"obs-simulcast.sdp", obs, "recv 0;1;2", "0 recv,1 recv,2 recv", "2 " + sdp.SDESRTPStreamIDURI},
	} {
		t.Run(c.file+" "+c.agent, func(t *testing.T) {
			g, _, _ := published(t)
			text, err := os.ReadFile("testdata/" + c.file)
			if err != nil {
				t.Fatal(err)
			}
			req := offerRequest(t, g, "news", "secret", string(text))
			req.Header.Set("User-Agent", c.agent)
			status, _, body := do(t, req)
			if status != http.StatusCreated {
				t.Fatalf("%d %s", status, body)
			}
			var answer sdp.SessionDescription
			if err := answer.UnmarshalString(body); err != nil {
				t.Fatal(err)
			}
			video := answer.MediaDescriptions[slices.IndexFunc(answer.MediaDescriptions, func(m *sdp.MediaDescription) bool { return m.MediaName.Media == "video" })]
			var rids []string
			extension := ""
			for _, a := range video.Attributes {
				if a.Key == "rid" {
					rids = append(rids, a.Value)
				}
				if a.Key == "extmap" && strings.HasSuffix(a.Value, sdp.SDESRTPStreamIDURI) {
					extension = a.Value
				}
			}
			if got, _ := video.Attribute("simulcast"); video.MediaName.Port.Value == 0 || got != c.simulcast || strings.Join(rids, ",") != c.rids || extension != c.extension {
				t.Errorf("simulcast %q, layers %q, extension %q:\n%s", got, rids, extension, body)
			}
		})
	}
}

// TestSimulcast checks that a channel has one of several layers, whether or not the producer declares
// the layer's SSRC, and although the producer sends the other layers, too.
func TestSimulcast(t *testing.T) {
	t.Parallel()
	pictures := h264(t)
	for name, declared := range map[string]int{"as OBS offers it": 1, "as Chromium offers it": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, all, _ := published(t)
			p := newWHIPProducer(t, webrtc.MimeTypeH264, "0", "1", "2")
			p.rewrite = func(offer string) string { return keepSSRCs(t, offer, declared) }
			p.publish(t, g, "news", "secret")
			if declared == 0 {
				p.layers = p.layers[:1] // a browser sends only the first layer after such an answer
			}
			p.run(t, pictures)
			until(t, "two key frames", func() bool { return state(t, g, "news").KeyFrames > 0 })
			sources := map[uint32]int{}
			for _, x := range parsed(t, all.of(7).to(mediaTo)) {
				if x.Video() {
					sources[x.SSRC]++
				}
			}
			if s := state(t, g, "news"); len(sources) != 1 || fault(s) != "" {
				t.Errorf("packets by SSRC: %v, %+v", sources, s)
			}
		})
	}
}

// keepSSRCs removes the declarations of SSRCs of pictures from an offer, except the first n SSRCs.
func keepSSRCs(t *testing.T, offer string, n int) string {
	t.Helper()
	var s sdp.SessionDescription
	if err := s.UnmarshalString(offer); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.MediaDescriptions {
		if m.MediaName.Media != "video" {
			continue
		}
		var kept []string
		m.Attributes = slices.DeleteFunc(m.Attributes, func(a sdp.Attribute) bool {
			if a.Key == "ssrc-group" {
				return true
			}
			if a.Key != "ssrc" {
				return false
			}
			ssrc, _, _ := strings.Cut(a.Value, " ")
			if len(kept) < n && !slices.Contains(kept, ssrc) {
				kept = append(kept, ssrc)
			}
			return !slices.Contains(kept, ssrc)
		})
	}
	b, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestWHIPWithBFrames checks that a producer whose pictures depend on later ones is refused in our words,
// because players of WebRTC show pictures in the order in which they are sent.
func TestWHIPWithBFrames(t *testing.T) {
	t.Parallel()
	pictures := h264(t, "-profile:v", "main", "-tune", "animation", "-bf", "2", "-b_strategy", "0")
	g, _, _ := published(t)
	p := newWHIPProducer(t, webrtc.MimeTypeH264)
	p.publish(t, g, "news", "secret")
	p.run(t, pictures)
	until(t, "the end of the session", func() bool { return g.channel("news").publisher() == nil })
	until(t, "the reason", func() bool { return strings.Contains(state(t, g, "news").Error, "B-frames") })
	if got := strings.Join(events(g, "news"), " "); !strings.Contains(got, "refused") {
		t.Errorf("events %q", got)
	}
}

// TestLocation checks that a session's address is right behind a proxy that has the gateway below a
// prefix, and that addresses may end with a slash.
func TestLocation(t *testing.T) {
	g, _, _ := published(t)
	to, err := url.Parse(g.PublicURL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.StripPrefix("/studio/one", httputil.NewSingleHostReverseProxy(to)))
	t.Cleanup(proxy.Close)
	for _, path := range []string{"/whip/news", "/whip/news/"} {
		for _, base := range []string{g.PublicURL(), proxy.URL + "/studio/one"} {
			req := offerRequest(t, g, "news", "secret", newWHIPProducer(t, webrtc.MimeTypeH264).offer(t))
			at, err := req.URL.Parse(base + path)
			if err != nil {
				t.Fatal(err)
			}
			req.URL, req.Host = at, at.Host
			status, location, body := do(t, req)
			if status != http.StatusCreated {
				t.Fatalf("%s: %d %s", at, status, body)
			}
			session, err := at.Parse(location)
			if err != nil {
				t.Fatal(err)
			}
			del, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, session.String()+strings.Repeat("/", strings.Count(path, "/")-2), nil)
			if err != nil {
				t.Fatal(err)
			}
			if status, _, body := do(t, del); status != http.StatusNoContent {
				t.Errorf("%s, and %s from it: %d %s", at, location, status, body)
			}
		}
	}
}

// TestICEAddresses checks that answers of a gateway behind NAT name the addresses that producers reach,
// and no others, wherever the gateway listens.
func TestICEAddresses(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		for _, external := range []string{"203.0.113.7", "2001:db8::7", "203.0.113.7 2001:db8::7 203.0.113.8"} {
			t.Run(listen+" "+external, func(t *testing.T) {
				g, _, c := start(t, func(cfg *Config) {
					cfg.Public = netip.MustParseAddrPort(listen)
					for a := range strings.FieldsSeq(external) {
						cfg.ICE = append(cfg.ICE, netip.MustParseAddr(a))
					}
				})
				at := netip.MustParseAddrPort(strings.TrimPrefix(g.PublicURL(), "http://"))
				if at.Addr() == g.cfg.Data { // the gateway listens everywhere
					g.public.url = "http://localhost:" + strconv.Itoa(int(at.Port()))
				}
				spec := waits("news", 7)
				spec.PublishHash = hashOf(t, "secret")
				if err := c.SetChannel(t.Context(), spec); err != nil {
					t.Fatal(err)
				}
				_, _, answer := post(t, g, "news", "secret", newWHIPProducer(t, webrtc.MimeTypeH264).offer(t))
				var got []string
				for line := range strings.Lines(answer) {
					if f := strings.Fields(line); strings.HasPrefix(line, "a=candidate:") && !slices.Contains(got, f[4]) {
						got = append(got, f[4])
						if f[5] != strconv.Itoa(int(at.Port())) {
							t.Errorf("port %s, want %d", f[5], at.Port())
						}
					}
				}
				slices.Sort(got)
				want := strings.Fields(external)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%v, want %v", got, want)
				}
			})
		}
	}
}
