package cinema

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestPortsHold checks that, whatever gateways request and report, the copies to the port of
// two of them stay within its capacity, and that no viewer who fits is refused.
func TestPortsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := map[string]uint64{"a": 2, "b": 3, "c": 5}
		b := bounds{viewers: 20, port: portCapacity{network.PortRef{Switch: 1, Port: 9}, rapid.Uint64Range(1, 40).Draw(t, "most"), []string{"east", "west"}}, rate: func(c string) uint64 { return rates[c] }}
		v, now := newViewers(), time.Now()
		channels := rapid.SampledFrom([][]string{nil, {"a"}, {"b"}, {"c"}, {"a", "b"}, {"c", "a"}, {"b", "c"}})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			gateway, n := rapid.SampledFrom([]string{"east", "west", "far"}).Draw(t, "gateway"), rapid.IntRange(1, 8).Draw(t, "viewer")
			port, list := rapid.Uint16Range(6000, 6008).Draw(t, "port"), channels.Draw(t, "channels")
			b := b
			if gateway == "far" {
				b.port = portCapacity{}
			}
			before := naive(v, b.rate)
			now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "seconds")) * time.Second)
			if rapid.Bool().Draw(t, "asks") {
				w := &gatewayapi.Wanted{Gateway: gateway, Viewer: id(n), Port: port, Channels: list}
				if _, err := v.request(w, b, now); err != nil && before+b.rate(list[0])+5 <= b.port.most {
					t.Fatalf("%v, with %d of %d taken", err, before, b.port.most)
				}
			} else {
				all := []gatewayapi.Viewer{{ID: id(n), Port: port, Channels: list}}
				v.applyReport(gateway, "one", all, b, now, func(string) bool { return true })
			}
			if after := naive(v, b.rate); after > before && gateway != "far" && after > b.port.most {
				t.Fatalf("%d are taken of %d", after, b.port.most)
			}
			if sum := v.taken(&bounds{port: portCapacity{gateways: []string{"east", "west"}}, rate: b.rate}); sum != naive(v, b.rate) {
				t.Fatalf("%d are counted of %d", sum, naive(v, b.rate))
			}
		}
		for _, x := range v.list() {
			if _, err := v.request(&gatewayapi.Wanted{Gateway: x.gateway, Viewer: x.id}, b, now); err != nil {
				t.Fatal(err)
			}
		}
		for name, g := range v.gateways {
			if len(g.load.viewers)+len(g.load.copies) > 0 {
				t.Fatalf("%s still has %+v", name, g.load)
			}
		}
	})
}

// naive returns the bit rate to the port of east and west, counted copy by copy.
func naive(v *viewers, rate func(string) uint64) (sum uint64) {
	copies := map[string]uint64{}
	for _, x := range v.list() {
		for _, c := range x.channels {
			if x.gateway != "far" {
				copies[fmt.Sprint(x.gateway, x.port, c)] = rate(c)
			}
		}
	}
	for x := range maps.Values(copies) {
		sum += x
	}
	return sum
}

// TestPortFull checks that a viewer for whom the gateway's own port has no room is refused with
// the port and the figures, that the gateway is shown as full, and that present viewers keep
// their channels.
func TestPortFull(t *testing.T) {
	b := newBench(t)
	b.net.set(func() { b.net.gate = 5e6 })
	room := func() (rooms []int) {
		for _, g := range get[gatewayapi.Lineup](b, "lineup").Gateways {
			rooms = append(rooms, g.Room)
		}
		return rooms
	}
	if got := room(); !slices.Equal(got, []int{2, 2}) {
		t.Errorf("room for %v viewers", got)
	}
	b.mustWant(b.east, 1, 6000, "a")
	b.mustWant(b.east, 2, 6001, "b")
	if got := room(); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("room for %v viewers", got)
	}
	ask := func(viewer int, channels string) (int, string) {
		return b.asAgent("east", "POST", "wanted", fmt.Sprintf(`{"gateway": "east", "viewer": "%s", "port": %d, "channels": %s}`, id(viewer), 5999+viewer, channels))
	}
	for viewer, channels := range map[int]string{3: `["a"]`, 1: `["b", "a"]`} {
		status, body := ask(viewer, channels)
		if status != http.StatusConflict || !strings.Contains(body, "port 0000000000000002/9: 2Mbit wanted, 500kbit of the 4.5Mbit for channels are left") || !strings.Contains(body, "body.gateway") {
			t.Errorf("%d %s", status, body)
		}
	}
	if status, body := ask(1, `["b"]`); status != http.StatusOK {
		t.Errorf("a change that takes no more: %d %s", status, body)
	}
	b.expect("b", 1, "10.0.0.2:6000", "10.0.0.2:6001")
	b.mustWant(b.west, 3, 6000, "a")
}

// TestIngressPortFull checks that channels go to ingress gateways whose own ports have room,
// and that one that fits nowhere reports which port lacks what.
func TestIngressPortFull(t *testing.T) {
	b := newBench(t)
	at := func(channel string) string { return get[ChannelInfo](b, "channels/"+channel).At }
	b.eventually("a and b have the only gateway", func() bool { return at("a") == "studio" && at("b") == "studio" })
	other := newStudio(t, "other", westAddr.Next())
	b.net.SetHost(host(other.addr, 3))
	b.register("ingress", "other", other.url, other.addr)
	b.gatewaysUp()
	b.net.set(func() { b.net.gate = 5e6 })
	add := func(name string, number int, rate units.Rate, ingress string) {
		status, body := b.ask("POST", "channels", fmt.Sprintf(`{"name": %q, "number": %d, "bit_rate": "%v", "source": "test:", "ingress": %q}`, name, number, rate, ingress))
		if status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
	}
	add("c", 3, 1e6, "")
	b.eventually("c is where there is room", func() bool { return at("c") == "other" })
	add("d", 4, 4e6, "")
	add("e", 5, 1e6, "studio")
	for channel, rate := range map[string]string{"d": "4Mbit", "e": "1Mbit"} {
		b.eventually(channel+" has no room", func() bool {
			said := b.trouble(channel)
			return strings.Contains(said, "port 0000000000000001/9: "+rate+" wanted, 500kbit of the 4.5Mbit for channels are left") && at(channel) == ""
		})
	}
	b.net.set(func() { b.net.gate = 20e6 })
	b.eventually("all have room", func() bool { return at("d") != "" && at("e") == "studio" })
}

// TestSendsMoreThanDeclared checks that a channel that exceeds its declared rate reports this
// after ten seconds, and not before.
func TestSendsMoreThanDeclared(t *testing.T) {
	m, now := &rateWindow{}, time.Now()
	feed := func(seconds int, rate units.Rate) {
		for range seconds * 10 {
			now = now.Add(100 * time.Millisecond)
			m.add(rate, now)
		}
	}
	says := func(ok bool) {
		t.Helper()
		if said := m.excess(2e6); strings.Contains(said, "2Mbit are declared") != ok {
			t.Errorf("it says %q", said)
		}
	}
	feed(9, 3e6)
	says(false)
	feed(2, 3e6)
	says(true)
	feed(10, 21e5)
	says(false)
	now = now.Add(time.Minute)
	feed(1, 3e6)
	says(false)
	if feed(10_000, 0); len(m.samples) > int(rateWindowLength/minSampleInterval) {
		t.Errorf("%d samples are kept", len(m.samples))
	}
	says(false)
}

// TestExcessIsTrouble checks that an excess that an ingress gateway measures is reported as the
// channel's trouble.
func TestExcessIsTrouble(t *testing.T) {
	h := &ingressState{reported: map[string]gatewayapi.ChannelState{}, rates: map[string]*rateWindow{}}
	h.reported["a"] = gatewayapi.ChannelState{Channel: gatewayapi.Channel{Name: "a", BitRate: 2e6}, OnAir: gatewayapi.OnAirLive, Measured: 9e6}
	s := &sources{assignments: map[string]assignment{"a": {gateway: "studio"}}, states: map[string]*ingressState{"studio": h}}
	now := time.Now()
	for i := range 11 {
		if said := s.problem("a"); said != "" {
			t.Fatal(said)
		}
		h.recordRates(now.Add(time.Duration(i) * time.Second))
	}
	if said := s.problem("a"); !strings.Contains(said, "9Mbit on average") {
		t.Errorf("it says %q", said)
	}
	h.reported["a"] = gatewayapi.ChannelState{Channel: h.reported["a"].Channel, OnAir: gatewayapi.OnAirDown}
	if h.recordRates(time.Now()); s.problem("a") != "" {
		t.Error(s.problem("a"))
	}
}

// TestEventsUpdateStates checks that a channel's state is that of its last event before the next report, and
// that events from before the report change nothing.
func TestEventsUpdateStates(t *testing.T) {
	began := time.Now()
	h := &ingressState{reported: map[string]gatewayapi.ChannelState{"a": {OnAir: gatewayapi.OnAirLive, Since: began, Measured: 2e6, Media: gatewayapi.MediaBoth}}}
	for _, x := range []struct {
		what  string
		after time.Duration
		want  gatewayapi.OnAir
	}{{"down", -time.Second, gatewayapi.OnAirLive}, {"refused", time.Second, gatewayapi.OnAirLive}, {"down", 2 * time.Second, gatewayapi.OnAirDown}, {"live", 3 * time.Second, gatewayapi.OnAirLive}} {
		h.apply([]gatewayapi.ChannelEvent{{Channel: "a", What: x.what, At: began.Add(x.after)}, {Channel: "b", What: x.what}})
		got := h.reported["a"]
		if got.OnAir != x.want || len(h.reported) != 1 || got.OnAir == gatewayapi.OnAirDown && (got.Measured != 0 || got.Media != "") {
			t.Errorf("after %s: %+v", x.what, h.reported)
		}
	}
}

// TestReportFromBeforeLeaving checks that a report that was sent before a viewer left does not bring
// the viewer back.
func TestReportFromBeforeLeaving(t *testing.T) {
	v, now, b := newViewers(), time.Now(), bounds{viewers: 10, rate: func(string) uint64 { return 1 }}
	told := []gatewayapi.Viewer{{ID: id(1), Port: 6000, Channels: []string{"a"}}}
	tells := func(after time.Duration) bool {
		out, _ := v.applyReport("east", "one", told, b, now.Add(after), func(string) bool { return true })
		return len(out) > 0
	}
	for _, channels := range [][]string{{"a"}, nil} {
		if _, err := v.request(&gatewayapi.Wanted{Gateway: "east", Viewer: id(1), Port: 6000, Channels: channels}, b, now); err != nil {
			t.Fatal(err)
		}
	}
	if tells(0) || tells(reportGrace-time.Millisecond) || len(v.list()) != 0 {
		t.Errorf("it is back: %+v", v.list())
	}
	if !tells(reportGrace) || len(v.list()) != 1 || len(v.gateways["east"].departed) != 0 {
		t.Errorf("a viewer that is told of for so long is not there: %+v", v.list())
	}
}
