package ingress

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// waits returns a channel whose producer publishes by WHIP.
func waits(name string, number uint16) gatewayapi.Channel {
	return gatewayapi.Channel{Name: name, Number: number, BitRate: 1_000_000, To: mediaAddr}
}

// wants checks a refusal.
func wants(t *testing.T, err error, code control.Code, field, detail string) {
	t.Helper()
	p, ok := errors.AsType[*control.Problem](err)
	if !ok || p.Code != code || p.Field != field || !strings.Contains(p.Title+": "+p.Detail, detail) {
		t.Errorf("%v; want %s of %q with %q", err, code, field, detail)
	}
}

// TestChannelsRefused checks that an invalid channel is refused with the field.
func TestChannelsRefused(t *testing.T) {
	g, _, c := start(t, nil)
	dear, err := bcrypt.GenerateFromPassword([]byte("x"), maxCost+1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetChannel(t.Context(), waits("first", 9)); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name   string
		change func(*gatewayapi.Channel)
		code   control.Code
		field  string
		detail string
	}{
		{"no name that can be shown", func(c *gatewayapi.Channel) { c.Name = "a'b" }, control.CodeBadRequest, "name", "letters"},
		{"a long name", func(c *gatewayapi.Channel) { c.Name = strings.Repeat("a", 64) }, control.CodeBadRequest, "name", "1 to 63"},
		{"no number", func(c *gatewayapi.Channel) { c.Number = 0 }, control.CodeBadRequest, "number", "from 1"},
		{"a great number", func(c *gatewayapi.Channel) { c.Number = 10000 }, control.CodeBadRequest, "number", "to 9999"},
		{"another's number", func(c *gatewayapi.Channel) { c.Number = 9 }, control.CodeDuplicate, "number", "that of first"},
		{"a small bit rate", func(c *gatewayapi.Channel) { c.BitRate = gatewayapi.MinRate - 1 }, control.CodeBadRequest, "bit_rate", "from 100kbit"},
		{"a great bit rate", func(c *gatewayapi.Channel) { c.BitRate = gatewayapi.MaxRate + 1 }, control.CodeBadRequest, "bit_rate", "to 1Gbit"},
		{"no address", func(c *gatewayapi.Channel) { c.To = netip.Addr{} }, control.CodeBadRequest, "to", "missing"},
		{"an address of IPv6", func(c *gatewayapi.Channel) { c.To = netip.MustParseAddr("2001:db8::1") }, control.CodeBadRequest, "to", "IPv4"},
		{"an address of IPv4 in IPv6", func(c *gatewayapi.Channel) { c.To = netip.MustParseAddr("::ffff:198.19.255.1") }, control.CodeBadRequest, "to", "IPv4"},
		{"the loopback address", func(c *gatewayapi.Channel) { c.To = netip.MustParseAddr("127.0.0.1") }, control.CodeBadRequest, "to", "another host"},
		{"a group's address", func(c *gatewayapi.Channel) { c.To = netip.MustParseAddr("224.1.1.1") }, control.CodeBadRequest, "to", "another host"},
		{"everybody's address", func(c *gatewayapi.Channel) { c.To = netip.MustParseAddr("255.255.255.255") }, control.CodeBadRequest, "to", "no host"},
		{"the gateway's own address", func(c *gatewayapi.Channel) { c.To = g.cfg.Data }, control.CodeBadRequest, "to", "own"},
		{"a password instead of its hash", func(c *gatewayapi.Channel) { c.PublishHash = "secret" }, control.CodeBadRequest, "publish_hash", "bcrypt"},
		{"a hash that takes long", func(c *gatewayapi.Channel) { c.PublishHash = string(dear) }, control.CodeBadRequest, "publish_hash", "at most 12"},
		{"a source that is none", func(c *gatewayapi.Channel) { c.Source = "http://192.0.2.1/" }, control.CodeBadRequest, "source", "rtsp://"},
		{"a pattern that is none", func(c *gatewayapi.Channel) { c.Source = "test:?size=big" }, control.CodeBadRequest, "source", "640x360"},
	} {
		t.Run(x.name, func(t *testing.T) {
			spec := waits("news", 7)
			x.change(&spec)
			wants(t, c.SetChannel(t.Context(), spec), x.code, x.field, x.detail)
		})
	}
	wants(t, c.Call(t.Context(), http.MethodPut, "/v1/channels/other", waits("news", 7), nil), control.CodeBadRequest, "name", "the path says")
	wants(t, c.Call(t.Context(), http.MethodPut, "/v1/channels/news", map[string]any{"nmae": "news"}, nil), control.CodeBadRequest, "body", "nmae")
	wants(t, c.Call(t.Context(), http.MethodPut, "/v1/channels/news", map[string]any{"bit_rate": 5}, nil), control.CodeBadRequest, "body", "")
	if n := len(g.list()); n != 1 {
		t.Errorf("%d channels", n)
	}
}

// TestBurstsRefused checks that bursts go to hosts only, and that their number is bounded.
func TestBurstsRefused(t *testing.T) {
	g, _, c := start(t, nil)
	if err := c.SetChannel(t.Context(), waits("news", 7)); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]string{
		"127.0.0.1:5000": "another host", "224.0.0.1:5000": "another host", "255.255.255.255:5000": "no host", "0.0.0.0:5000": "no host",
		"169.254.1.1:5000": "another host", "192.0.2.1:5000": "own", "192.0.2.9:53": "from 1024", "[2001:db8::1]:5000": "IPv4",
	} {
		wants(t, c.Burst(t.Context(), "news", gatewayapi.Burst{To: netip.MustParseAddrPort(to)}), control.CodeBadRequest, "to", want)
	}
	wants(t, c.Burst(t.Context(), "news", gatewayapi.Burst{}), control.CodeBadRequest, "to", "missing")
	wants(t, c.Burst(t.Context(), "none", gatewayapi.Burst{}), control.CodeNotFound, "", "none")
	to := gatewayapi.Burst{To: netip.MustParseAddrPort("192.0.2.9:5000")}
	news := g.channel("news")
	news.bursts.Store(maxChannelBursts)
	wants(t, c.Burst(t.Context(), "news", to), control.CodeFull, "", "of the channel news")
	news.bursts.Store(0)
	for range maxBursts {
		g.bursts <- struct{}{}
	}
	wants(t, c.Burst(t.Context(), "news", to), control.CodeFull, "", "of all channels")
	for range maxBursts {
		<-g.bursts
	}
	if err := c.Burst(t.Context(), "news", to); err != nil { // an empty burst
		t.Error(err)
	}
	until(t, "the places", func() bool { return news.bursts.Load() == 0 && len(g.bursts) == 0 })
}

// TestRoom checks that a gateway accepts no more channels than configured, and none while it
// drains, and that its channels continue.
func TestRoom(t *testing.T) {
	g, all, c := start(t, func(cfg *Config) { cfg.MaxChannels = 2 })
	for i := range uint16(2) {
		if err := c.SetChannel(t.Context(), waits(fmt.Sprintf("c%d", i), i+1)); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, c.SetChannel(t.Context(), waits("more", 3)), control.CodeFull, "", "2 channels")
	if err := c.DeleteChannel(t.Context(), "c0"); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteChannel(t.Context(), "c0"); err != nil { // the gateway does not have it any more
		t.Error(err)
	}
	if _, err := c.Drain(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	wants(t, c.SetChannel(t.Context(), waits("more", 3)), control.CodeDraining, "", "draining")
	// A repeated request changes nothing; a different one does, also while the gateway drains.
	if err := c.SetChannel(t.Context(), waits("c1", 2)); err != nil || all.of(2).closed {
		t.Errorf("%v, closed: %v", err, all.of(2).closed)
	}
	old := all.of(2)
	if err := c.SetChannel(t.Context(), waits("c1", 5)); err != nil || !old.closed || all.of(5) == nil || len(g.list()) != 1 {
		t.Errorf("%v, the old one closed: %v", err, old.closed)
	}
	faster := waits("c1", 5)
	faster.BitRate, faster.PublishHash = 2_000_000, hashOf(t, "p")
	if err := c.SetChannel(t.Context(), faster); err != nil || all.of(5).closed || state(t, g, "c1").Channel != faster {
		t.Errorf("%v, %+v", err, state(t, g, "c1"))
	}
}

// TestStatus checks what the controller learns: the public URL, the channels, and what they
// carry.
func TestStatus(t *testing.T) {
	g, _, c := start(t, func(cfg *Config) { cfg.PublicURL = "https://live.example.org" })
	if err := c.SetChannel(t.Context(), waits("news", 7)); err != nil {
		t.Fatal(err)
	}
	st, err := c.Status(t.Context())
	if err != nil || st.PublicURL != "https://live.example.org" || st.Sessions != 1 || st.MaxSessions != 4 || st.Version != "v1" || st.Addrs[0] != g.cfg.Data {
		t.Errorf("%+v, %v", st, err)
	}
	for at, want := range map[string]string{"192.0.2.1:8460": "http://192.0.2.1:8460", "0.0.0.0:8460": "http://10.0.0.1:8460", "[::]:8460": "http://10.0.0.1:8460"} {
		if got := publicURL(netip.MustParseAddrPort(at), netip.MustParseAddr("10.0.0.1"), false); got != want {
			t.Errorf("%s is reached at %s", at, got)
		}
	}
	err = c.Watch(t.Context(), time.Minute, func(e control.Event[gatewayapi.ChannelEvent, gatewayapi.ChannelState]) {
		if len(e.Live) != 1 || e.Live[0].Channel != waits("news", 7) || e.Live[0].OnAir != gatewayapi.OnAirWaiting {
			t.Errorf("%+v", e.Live)
		}
		g.server.Close()
	})
	if errors.Is(err, control.ErrSilent) {
		t.Error(err)
	}
}

// TestLiveness checks that a silent channel is down, and live again with the next datagram.
func TestLiveness(t *testing.T) {
	t.Parallel()
	g, all, c := start(t, nil)
	if err := c.SetChannel(t.Context(), waits("news", 7)); err != nil {
		t.Fatal(err)
	}
	news := g.channel("news")
	packet := []byte{0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, 0x65, 1}
	began := time.Now()
	news.feed(packet)
	news.feed([]byte("no packet at all"))
	news.feed([]byte{0x80, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, 0}) // neither of the payload types
	if n := len(all.of(7).to(mediaTo)); n != 1 || g.totals.unexpected.Load() != 2 || len(events(g, "news")) == 0 {
		t.Errorf("%+v, %d sent", state(t, g, "news"), n)
	}
	until(t, "down", func() bool { return state(t, g, "news").OnAir == gatewayapi.OnAirDown })
	if took := time.Since(began); took < silenceTimeout-tickInterval {
		t.Errorf("down after %v", took)
	}
	news.feed(packet)
	if got := strings.Join(events(g, "news"), " "); got != "live down live" || state(t, g, "news").OnAir != gatewayapi.OnAirLive {
		t.Errorf("events %q", got)
	}
}

// TestExcess checks that what exceeds a channel's bit rate by more than a quarter is dropped
// and reported.
func TestExcess(t *testing.T) {
	t.Parallel()
	g, all, c := start(t, nil)
	if err := c.SetChannel(t.Context(), waits("news", 7)); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 1250-headerBytes) // 10 kbit
	copy(packet, []byte{0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, 0x41})
	began := time.Now()
	for g.totals.excess.Load() == 0 {
		g.channel("news").feed(packet)
	}
	// One second has 125 datagrams within the bit rate.
	if n, most := len(all.of(7).to(mediaTo)), 125+int(150*time.Since(began).Seconds())+1; n < 125 || n > most {
		t.Errorf("%d datagrams were sent, want 125 to %d", n, most)
	}
	if s := state(t, g, "news"); !strings.Contains(s.Error, "more than a quarter above 1Mbit") {
		t.Errorf("%+v", s)
	}
	pause.For(1200*time.Millisecond, "what has passed is of the last second no more")
	before := len(all.of(7).to(mediaTo))
	g.channel("news").feed(packet)
	if len(all.of(7).to(mediaTo)) != before+1 {
		t.Error("nothing passes any more")
	}
}

// TestUnsent checks that a datagram that the kernel refuses is reported, and that the next one
// is sent.
func TestUnsent(t *testing.T) {
	g, all, c := start(t, nil)
	if err := c.SetChannel(t.Context(), waits("news", 7)); err != nil {
		t.Fatal(err)
	}
	all.of(7).failWith(errors.New("network is down"))
	packet := []byte{0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, 0x65, 1}
	g.channel("news").feed(packet)
	if s := state(t, g, "news"); s.Error != "network is down" {
		t.Errorf("%+v", s)
	}
	all.of(7).failWith(nil)
	g.channel("news").feed(packet)
	if len(all.of(7).to(mediaTo)) != 1 {
		t.Error("the next one was not tried")
	}
}

// TestSendPaced checks that a group is sent at an even rate: 2 s of 1 Mbit/s within about 30
// ms, and never faster than the highest rate.
func TestSendPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, x := range []struct {
			packets     int
			least, most time.Duration
		}{{3, 0, 20 * time.Millisecond}, {205, 20 * time.Millisecond, 60 * time.Millisecond}, {2000, 90 * time.Millisecond, 300 * time.Millisecond}} {
			group := make([][]byte, x.packets)
			for i := range group {
				group[i] = make([]byte, 1200)
			}
			n, began := 0, time.Now()
			sendPaced(t.Context(), group, func([]byte) bool { n++; return true })
			if took := time.Since(began); n != x.packets || took < x.least || took > x.most {
				t.Errorf("%d of %d took %v, want %v to %v", n, x.packets, took, x.least, x.most)
			}
			n = 0
			sendPaced(t.Context(), group, func([]byte) bool { n++; return n < 2 })
			if n != 2 {
				t.Errorf("%d were tried after one was not sent", n)
			}
		}
	})
}

// TestConfigRefused checks that invalid configurations are refused.
func TestConfigRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"data address":           func(c *Config) { c.Data = netip.MustParseAddr("2001:db8::1") },
		"public address":         func(c *Config) { c.Public = netip.AddrPort{} },
		"0 channels":             func(c *Config) { c.MaxChannels = 0 },
		"no log":                 func(c *Config) { c.Log = nil },
		"control address":        func(c *Config) { c.Listen = "192.0.2.77:1" },
		"public address: listen": func(c *Config) { c.Public = netip.MustParseAddrPort("192.0.2.77:1") },
		"no interface has":       func(c *Config) { c.openOutput = nil },
	} {
		g, _, _ := start(t, nil)
		cfg := g.cfg
		change(&cfg)
		if g, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want an error with %q", err, want)
			if err == nil {
				g.Close()
			}
		}
	}
}

// TestPublicTLS checks that the public listener has its own certificate, and requires none.
func TestPublicTLS(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Init(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{Role: pki.RoleAgent, Name: "gw", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(dir, "gw"); err != nil {
		t.Fatal(err)
	}
	g, _, _ := start(t, func(cfg *Config) {
		cfg.PublicTLS, err = pki.Server(pki.Files{Cert: filepath.Join(dir, "gw.crt"), Key: filepath.Join(dir, "gw.key")}, false)
	})
	if err != nil {
		t.Fatal(err)
	}
	trusting, err := pki.Client(pki.Files{CA: filepath.Join(dir, "ca.crt")})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: trusting}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, g.PublicURL()+"/whip/sessions/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNotFound || !strings.HasPrefix(g.PublicURL(), "https://") {
		t.Errorf("%s: %d", g.PublicURL(), res.StatusCode)
	}
}
