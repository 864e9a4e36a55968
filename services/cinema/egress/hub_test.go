package egress

import (
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// TestSharedPort checks viewers of a gateway that copies to them itself. A channel arrives at
// the one port once, is requested in a burst only for its first viewer, and ends with the last
// one. Each viewer sees what it would see with a port of its own.
func TestSharedPort(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Shared = true }, "news", "sport")
	w.limits.viewers = 10
	var all []*player
	for range 4 {
		all = append(all, w.joins("news"))
	}
	for _, p := range all {
		if first := p.packets("video")[0]; first.nal != 0x67 {
			t.Errorf("the first packet is %+v", first)
		}
	}
	port := w.live()[0].Port
	for _, v := range w.live() {
		if v.Port != port || !v.Shared {
			t.Errorf("%+v", v)
		}
	}
	if _, bursts := w.studios["news"].counts(); bursts != 1 {
		t.Errorf("%d bursts for four viewers", bursts)
	}
	for _, p := range all[:2] {
		if _, status, text := p.changes("sport"); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		w.until("the other sound", func() bool { return p.hears() == 2 })
	}
	if _, bursts := w.studios["sport"].counts(); bursts != 1 {
		t.Errorf("%d bursts for two viewers who change", bursts)
	}
	pause.For(200*time.Millisecond, "the others go on")
	for i, p := range all {
		want := byte(1)
		if i < 2 {
			want = 2
		}
		if p.hears() != want {
			t.Errorf("viewer %d hears channel %d, not %d", i, p.hears(), want)
		}
		p.continuous()
		if res, text := w.ask(http.MethodDelete, p.session, "", ""); res.StatusCode != http.StatusNoContent {
			t.Errorf("%s: %s", res.Status, text)
		}
	}
	w.until("nobody", func() bool {
		w.hub.mu.Lock()
		defer w.hub.mu.Unlock()
		return w.count() == 0 && !w.studios["news"].has(port) && !w.studios["sport"].has(port) && len(w.hub.channels)+len(w.hub.followers) == 0
	})
}

// TestSharedSourceMoves checks that all viewers find a channel again whose port has changed
// with its number.
func TestSharedSourceMoves(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Shared = true }, "news", "other")
	p, q := w.joins("news"), w.joins("news")
	for _, v := range w.live() {
		w.studios["news"].copyTo(v.Port, v.ID, false, false)
	}
	w.mu.Lock()
	w.studios["news"] = w.studios["other"]
	delete(w.studios, "other")
	w.lines.Channels = []gatewayapi.Listed{{Name: "news", Number: 2, OnAir: gatewayapi.OnAirLive}}
	w.mu.Unlock()
	for _, x := range []*player{p, q} {
		w.until("the other port's", func() bool { return x.hears() == 2 })
		x.continuous()
	}
}

// TestHubIsBounded checks that a slow viewer loses only its own datagrams, and that datagrams
// of no channel that is followed are counted and not kept.
func TestHubIsBounded(t *testing.T) {
	g := still(t)
	h := newHub(30000, nil, g.metrics)
	from := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), gatewayapi.SourcePort(1))
	slow, quick := h.newSource(), h.newSource()
	for _, s := range []*hubSource{slow, quick} {
		s.setPorts([]uint16{from.Port()})
		s.group(from, time.Now())
	}
	raw := rtpPacket(media.VideoType, true, 1, 1, 1, 0x67, 1)
	taken := 0
	for range 3 * maxInbox {
		h.distribute(datagram{from, raw}, time.Now())
		h.distribute(datagram{netip.AddrPortFrom(from.Addr(), 1), raw}, time.Now())
		for len(quick.inbox) > 0 {
			<-quick.inbox
			taken++
		}
	}
	if len(slow.inbox) != maxInbox || taken != 3*maxInbox || len(h.channels) != 1 {
		t.Errorf("%d wait, %d taken, channels: %v", len(slow.inbox), taken, h.channels)
	}
	if !slow.allowRepair(from, time.Now()) || quick.allowRepair(from, time.Now()) {
		t.Error("what is missing is not asked for once for both")
	}
	slow.close()
	if !slices.Equal(quick.ports, []uint16{from.Port()}) || len(h.channels) != 1 {
		t.Error("who leaves takes the channel along")
	}
	quick.close()
	quick.setPorts([]uint16{from.Port()}) // a request that ends late
	quick.group(from, time.Now())
	if len(h.channels)+len(h.followers) != 0 {
		t.Errorf("left: %v, %v", h.channels, h.followers)
	}
}

// TestHubKeepsWhatComesEarly checks that a burst that arrives before its source is known is
// kept for the next viewer, for one source of each port.
func TestHubKeepsWhatComesEarly(t *testing.T) {
	h := newHub(30000, nil, still(t).metrics)
	port := gatewayapi.SourcePort(1)
	from, other := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), port)
	raw := rtpPacket(media.VideoType, true, 1, 1, 1, 0x67, 1)
	first := h.newSource()
	h.distribute(datagram{from, raw}, time.Now())
	if first.hasChannel(port, time.Now()) {
		t.Error("it is kept, and nobody follows it")
	}
	first.setPorts([]uint16{port})
	for _, at := range []netip.AddrPort{from, other} {
		h.distribute(datagram{at, raw}, time.Now())
	}
	if !first.hasChannel(port, time.Now()) || len(first.group(from, time.Now())) != 1 || len(h.channels) != 1 {
		t.Errorf("kept: %v", h.channels)
	}
	if first.group(other, time.Now()); len(h.channels) != 2 {
		t.Error("what is said to be the source is not kept")
	}
	first.close()
	if len(h.channels)+len(h.cachedPorts) != 0 {
		t.Errorf("left: %v, %v", h.channels, h.cachedPorts)
	}
}
