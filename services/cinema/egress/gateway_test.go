package egress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestJoinAndLeave checks that a viewer who joins sees the picture from its key frame on, with
// sound, and that the controller is told of it until it leaves.
func TestJoinAndLeave(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p := w.joins("news")
	if first := p.packets("video")[0]; first.nal != 0x67 || first.from != 1 {
		t.Errorf("the first packet is %+v", first)
	}
	w.until("sound", func() bool { return p.hears() == 1 })
	live := w.live()
	if len(live) != 1 || !slices.Equal(live[0].Channels, []string{"news"}) || live[0].Player != "whep" || live[0].Address.String() != "127.0.0.1" ||
		live[0].Port < 30000 || live[0].Packets == 0 || live[0].Lost != 0 {
		t.Errorf("%+v", live)
	}
	if s := w.server.Now(); s.Sessions != 1 || s.PublicURL != w.url || s.MaxSessions != 10 {
		t.Errorf("%+v", s)
	}
	if res, text := w.ask(http.MethodDelete, p.session, "", ""); res.StatusCode != http.StatusNoContent {
		t.Errorf("%s: %s", res.Status, text)
	}
	w.until("nobody", func() bool { return w.count() == 0 && !w.studios["news"].has(live[0].Port) })
	var records []gatewayapi.ViewerEvent
	w.until("an end of it", func() bool { records, _ = w.server.Records(); return len(records) == 2 })
	if records[0].What != "joined" || records[1].What != "left" || records[1].Channel != "news" || records[0].Viewer != live[0].ID {
		t.Errorf("%+v", records)
	}
	if res, _ := w.ask(http.MethodDelete, p.session, "", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("a session that is over: %s", res.Status)
	}
	p.continuous()
}

// TestManyChanges checks that the player gets one continuous stream over many changes, and that
// each is make-before-break, with a burst of the new channel.
func TestManyChanges(t *testing.T) {
	w := newWorld(t, nil, "news", "sport", "film", "music")
	p := w.joins("news")
	names := []string{"news", "sport", "film", "music"}
	const changes = 40
	old := "news"
	for i := range changes {
		name := names[(i*3+1)%4]
		if name == old {
			name = names[(i*3+2)%4]
		}
		_, status, text := p.changes(name)
		if status != http.StatusOK {
			t.Fatalf("change %d: %d %s", i, status, text)
		}
		pause.For(time.Second/maxRequestRate, "no address may ask more often")
		wants := w.wanted()
		if last := wants[len(wants)-1]; !slices.Equal(last, []string{name, old}) {
			t.Fatalf("from %s to %s it wanted %v", old, name, last)
		}
		old = name
	}
	number := byte(slices.Index(names, old) + 1)
	w.until("the sound of the last", func() bool { return p.hears() == number })
	p.continuous()
	bursts := 0
	for _, s := range w.studios {
		_, n := s.counts()
		bursts += n
	}
	if bursts < changes {
		t.Errorf("%d bursts were asked for with %d changes", bursts, changes)
	}
	live := w.live()[0]
	if live.Changes != changes || live.Zap <= 0 || live.Lost != 0 || !slices.Equal(live.Channels, []string{old}) {
		t.Errorf("%+v", live)
	}
	port := w.all()[0].in.port()
	for name, s := range w.studios {
		w.until("the last channel alone", func() bool { return s.has(port) == (name == old) })
	}
}

// TestChangeCrossesOnce checks that a change of channel is one request to the controller, which
// ends the old channel by the record of the change.
func TestChangeCrossesOnce(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p := w.joins("news")
	port := w.live()[0].Port
	if _, status, text := p.changes("sport"); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	w.oneCrossing(1, []string{"news"}, []string{"sport", "news"})
	if w.studios["news"].has(port) || !w.studios["sport"].has(port) {
		t.Error("the old channel is still copied, or the new one is not")
	}
	if _, status, text := p.changes("news"); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	w.oneCrossing(2, []string{"news"}, []string{"sport", "news"}, []string{"news", "sport"})
	if live := w.live()[0]; !slices.Equal(live.Channels, []string{"news"}) {
		t.Errorf("%+v", live)
	}
	w.until("the sound", func() bool { return p.hears() == 1 })
	p.continuous()
}

// TestChangesAtOnce checks that viewers who change to the same channel at the same time do not
// disturb each other.
func TestChangesAtOnce(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxViewers = 6 }, "news", "sport", "film")
	w.limits.viewers = 6
	var all []*player
	for range 6 {
		all = append(all, w.joins("news"))
	}
	if res, _ := w.ask(http.MethodPost, "/whep/news", "application/sdp", w.newPlayer(webrtc.SettingEngine{}).offer()); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a seventh viewer: %s", res.Status)
	}
	for _, name := range []string{"sport", "film", "news", "sport"} {
		var together sync.WaitGroup
		for _, p := range all {
			together.Go(func() {
				if _, status, text := p.changes(name); status != http.StatusOK {
					t.Errorf("%d %s", status, text)
				}
			})
		}
		together.Wait()
		pause.For(400*time.Millisecond, "no address may ask more often")
	}
	for _, p := range all {
		w.until("the sound", func() bool { return p.hears() == 2 })
		p.continuous()
	}
	for _, v := range w.live() {
		if v.Changes != 4 || v.Lost != 0 || !slices.Equal(v.Channels, []string{"sport"}) {
			t.Errorf("%+v", v)
		}
	}
}

// TestPictureLoss checks that a player that has lost its picture gets it again without a gap,
// at a limited rate.
func TestPictureLoss(t *testing.T) {
	w := newWorld(t, nil, "news")
	p := w.joins("news")
	ssrc := uint32(p.pc.GetReceivers()[0].Track().SSRC())
	keys := func() (n int) {
		for _, x := range p.packets("video") {
			if x.nal == 0x67 {
				n++
			}
		}
		return n
	}
	w.until("the third key frame", func() bool { return keys() == 3 }) // the refresh interval is over
	w.studios["news"].ends()
	w.until("a picture after it", func() bool { all := p.packets("video"); return all[len(all)-1].nal == 0x41 })
	had := keys()
	before := time.Now()
	for range 50 {
		if err := p.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: ssrc}, &rtcp.FullIntraRequest{MediaSSRC: ssrc, FIR: []rtcp.FIREntry{{SSRC: ssrc}}}}); err != nil {
			t.Fatal(err)
		}
	}
	w.until("the picture again", func() bool { return keys() > had })
	w.until("more", func() bool { all := p.packets("video"); return all[len(all)-1].at.Sub(before) > refreshInterval })
	if n, most := keys()-had, 2+int(time.Since(before)/refreshInterval); n > most {
		t.Errorf("%d key frames after a hundred requests, want at most %d", n, most)
	}
	p.continuous()
}

// TestUnexpectedSource checks that datagrams from an unexpected source are dropped.
func TestUnexpectedSource(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p := w.joins("news")
	port := w.live()[0].Port
	w.studios["sport"].copyTo(port, "stranger", true, true)
	w.until("strange datagrams", func() bool { return metricOf(w, "sluice_cinema_strange_datagrams_total") > 50 })
	for _, x := range p.packets("audio") {
		if x.from != 1 {
			t.Fatalf("sound of channel %d", x.from)
		}
	}
	p.continuous()
}

func metricOf(w *world, name string) float64 {
	all, err := w.metrics.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	w.t.Fatalf("no metric %s", name)
	return 0
}

// keyFrameTest is the timeout for a key frame in tests of a channel that has none. Other
// channels have theirs at once.
const keyFrameTest = 4 * time.Second

// TestChannelWithoutKeyFrame checks that a viewer does not change to a channel without a key
// frame, and that another change replaces the one that waits.
func TestChannelWithoutKeyFrame(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Times.KeyFrame = keyFrameTest }, "news", "dark", "sport")
	w.studios["dark"].falls(true)
	p := w.joins("news")
	_, status, text := p.changes("dark")
	if status != http.StatusGatewayTimeout {
		t.Errorf("%d %s", status, text)
	}
	wants := w.wanted()
	if last := wants[len(wants)-1]; !slices.Equal(last, []string{"news"}) || p.hears() != 1 {
		t.Errorf("it wants %v and hears %d", last, p.hears())
	}
	replaced := make(chan int, 1)
	go func() {
		_, status, _ := p.changes("dark")
		replaced <- status
	}()
	w.until("the change to begin", func() bool { return slices.Equal(w.live()[0].Channels, []string{"dark", "news"}) })
	if _, status, text = p.changes("sport"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if got := <-replaced; got != http.StatusConflict {
		t.Errorf("the change that was replaced: %d", got)
	}
	w.until("the other channel", func() bool { return p.hears() == 3 })
	if live := w.live()[0]; !slices.Equal(live.Channels, []string{"sport"}) || live.Changes != 1 {
		t.Errorf("%+v", live)
	}
	p.continuous()
}

// TestChannelThatBegins checks that a viewer of a channel without a picture can change to
// another one, and sees its own channel's picture as soon as there is one.
func TestChannelThatBegins(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Times.KeyFrame = keyFrameTest }, "dark", "darker", "sport")
	w.studios["dark"].falls(true)
	w.studios["darker"].falls(true)
	p := w.newPlayerThatJoins("dark")
	if _, status, text := p.changes("darker"); status != http.StatusGatewayTimeout {
		t.Errorf("%d %s", status, text)
	}
	w.studios["dark"].falls(false)
	w.until("a picture", func() bool { return len(p.packets("video")) > 0 })
	if _, status, text := p.changes("sport"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	p.continuous()
}

// TestControllerAway checks that viewers keep their channels while the controller is away, and
// that a change fails with an explanation until it is back.
func TestControllerAway(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Times.Ask = 4 * time.Second }, "news", "sport")
	p := w.joins("news")
	w.leaves(true)
	n := len(p.packets("video"))
	_, status, text := p.changes("sport")
	if status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, text)
	}
	w.until("more packets", func() bool { return len(p.packets("video")) > n+60 })
	if res, _ := w.ask(http.MethodGet, "/channels", "", ""); res.StatusCode != http.StatusOK {
		t.Errorf("the lineup: %s", res.Status)
	}
	w.leaves(false)
	if _, status, text = p.changes("sport"); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	p.continuous()
}

// TestDeletedChannel checks that a viewer of a deleted channel can change to another one, and
// that the error for a missing channel names only the requested one.
func TestDeletedChannel(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p := w.joins("news")
	w.studios["news"].copyTo(w.live()[0].Port, w.live()[0].ID, false, false)
	w.mu.Lock()
	delete(w.studios, "news")
	w.mu.Unlock()
	if _, status, text := p.changes("nowhere"); status != http.StatusNotFound || !strings.Contains(text, "nowhere") {
		t.Errorf("a channel that is not there: %d %s", status, text)
	}
	if _, status, text := p.changes("sport"); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	w.until("the other sound", func() bool { return p.hears() == 2 })
	if live := w.live()[0]; !slices.Equal(live.Channels, []string{"sport"}) {
		t.Errorf("%+v", live)
	}
	p.continuous()
}

// TestSourceMoves checks that a channel that has moved to another gateway is found again.
func TestSourceMoves(t *testing.T) {
	w := newWorld(t, nil, "news", "other")
	p := w.joins("news")
	port := w.live()[0].Port
	w.studios["news"].copyTo(port, w.live()[0].ID, false, false)
	w.mu.Lock()
	w.studios["news"] = w.studios["other"]
	delete(w.studios, "other")
	w.mu.Unlock()
	w.until("the other gateway's", func() bool { return p.hears() == 2 })
	p.continuous()
}

// TestChannels checks that the lineup for pages names the gateway that answers.
func TestChannels(t *testing.T) {
	w := newWorld(t, nil, "news")
	w.mu.Lock()
	w.lines.Gateways = []gatewayapi.Gateway{{Name: "east", Room: 5, URL: "https://192.0.2.7:8445/"}}
	w.mu.Unlock()
	w.until("the gateways", func() bool { return len(w.lineup.Load().Gateways) == 1 })
	res, text := w.ask(http.MethodGet, "/channels", "", "")
	want := `{"channels":[{"name":"news","number":1,"title":"NEWS","on_air":"live","viewers":0,"protected":false}],"gateways":[{"name":"east","room":5,"url":"https://192.0.2.7:8445/"}],"gateway":"west"}` + "\n"
	if res.StatusCode != http.StatusOK || text != want || res.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("%s: %s", res.Status, text)
	}
}

// TestChannelsAreCurrent checks that the lineup for pages is what the controller says now, and the last
// one if the controller does not answer.
func TestChannelsAreCurrent(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Times.Poll = time.Hour }, "news")
	onAir := func() string {
		_, text := w.ask(http.MethodGet, "/channels", "", "")
		var l gatewayapi.Lineup
		if err := json.Unmarshal([]byte(text), &l); err != nil || len(l.Channels) != 1 {
			t.Fatalf("%q: %v", text, err)
		}
		return string(l.Channels[0].OnAir)
	}
	w.mu.Lock()
	w.lines.Channels[0].OnAir = gatewayapi.OnAirDown
	w.mu.Unlock()
	w.until("the change", func() bool { return onAir() == "down" })
	w.mu.Lock()
	w.away = true
	w.lines.Channels[0].OnAir = gatewayapi.OnAirLive
	w.mu.Unlock()
	if got := onAir(); got != "down" {
		t.Errorf("%s while the controller is away", got)
	}
}

// TestChannelFromNowhere checks that a channel without a source is seen when it gets one, and
// that a viewer cannot change to it before.
func TestChannelFromNowhere(t *testing.T) {
	w := newWorld(t, nil, "news", "later")
	later := w.studios["later"]
	w.mu.Lock()
	later.nowhere = true
	w.mu.Unlock()
	p, q := w.joins("news"), w.newPlayerThatJoins("later")
	if _, status, text := p.changes("later"); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, text)
	}
	if wants := w.wanted(); !slices.Equal(wants[len(wants)-1], []string{"news"}) {
		t.Errorf("it wants %v", wants)
	}
	w.mu.Lock()
	later.nowhere = false
	w.mu.Unlock()
	w.until("the picture", func() bool { return q.hears() == 2 && len(q.packets("video")) > 0 })
	p.continuous()
	q.continuous()
}

// TestAnswersOfController checks that errors of the controller are explained to viewers.
func TestAnswersOfController(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"no password":           {problem(http.StatusForbidden, "body.password"), http.StatusUnauthorized},
		"another gateway":       {problem(http.StatusForbidden, "body.gateway"), http.StatusBadGateway},
		"no such channel":       {problem(http.StatusUnprocessableEntity, "body.channels[0]"), http.StatusNotFound},
		"the other one is gone": {problem(http.StatusUnprocessableEntity, "body.channels[1]"), http.StatusBadGateway},
		"too many channels":     {problem(http.StatusUnprocessableEntity, "body.channels"), http.StatusBadGateway},
		"a gateway not known":   {problem(http.StatusUnprocessableEntity, "body.gateway"), http.StatusBadGateway},
		"no room on a link":     {problem(http.StatusConflict, "body.channels"), http.StatusConflict},
		"too many passwords":    {problem(http.StatusTooManyRequests, "body.password"), http.StatusTooManyRequests},
		"no rules yet":          {problem(http.StatusServiceUnavailable, ""), http.StatusServiceUnavailable},
		"no certificate":        {problem(http.StatusUnauthorized, ""), http.StatusBadGateway},
		"no answer":             {client.ErrUnreachable, http.StatusServiceUnavailable},
		"no answer in time":     {context.DeadlineExceeded, http.StatusServiceUnavailable},
		"no answer that is one": {io.ErrUnexpectedEOF, http.StatusServiceUnavailable},
		"a change in between":   {errReplaced, http.StatusConflict},
	} {
		if r, ok := errors.AsType[*refusal](controllerRefusal(c.err, "news")); !ok || r.Status != c.status || r.Detail == "" {
			t.Errorf("%s: %+v, want %d", name, r, c.status)
		}
	}
}
