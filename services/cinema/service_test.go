package cinema

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/tree"
)

// TestViewers checks that switches copy to viewers what they are to get when they join, change
// and leave, over each link once, and have only the guard when nobody watches.
func TestViewers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.eventually("the ingress gateway has the channels", func() bool { return len(b.studio.list()) == 2 })
	b.mustWant(b.east, 1, 6000, "a")
	b.expect("a", 1, "10.0.0.2:6000")
	b.mustWant(b.east, 2, 6001, "a")
	b.expect("a", 1, "10.0.0.2:6000", "10.0.0.2:6001")
	b.mustWant(b.west, 3, 6000, "a")
	b.expect("a", 2, "10.0.0.2:6000", "10.0.0.2:6001", "10.0.0.3:6000")
	b.mustWant(b.east, 1, 6000, "b", "a")
	b.expect("a", 2, "10.0.0.2:6000", "10.0.0.2:6001", "10.0.0.3:6000")
	b.expect("b", 1, "10.0.0.2:6000")
	b.mustWant(b.east, 1, 6000, "b")
	b.awaitCopies("a", "10.0.0.2:6001", "10.0.0.3:6000")
	b.expect("b", 1, "10.0.0.2:6000")
	b.eventually("the channels are on the air", func() bool {
		return !slices.ContainsFunc(get[gatewayapi.Lineup](b, "lineup").Channels, func(c gatewayapi.Listed) bool { return c.OnAir != gatewayapi.OnAirLive })
	})
	lineup := get[gatewayapi.Lineup](b, "lineup")
	if c := lineup.Channels; len(c) != 2 || c[0].Name != "a" || c[0].Viewers != 2 || c[1].Viewers != 1 {
		t.Errorf("lineup %+v", c)
	}
	if g := lineup.Gateways; len(g) != 2 || g[0].Name != "east" || g[0].Room != 98 || g[0].URL != "https://east.example" {
		t.Errorf("lineup %+v", g)
	}
	if trees := get[[]TreeInfo](b, "trees"); len(trees) != 2 || len(trees[0].Links) != 2 || trees[0].Viewers != 2 || trees[0].Switches[1].Groups != 1 {
		t.Errorf("trees %+v", trees)
	}
	for n, h := range map[int]*fakeEgress{1: b.east, 2: b.east, 3: b.west} {
		b.mustWant(h, n, uint16(5999+n))
	}
	b.eventually("only the guards are left", b.onlyGuards)
	if viewers := get[[]ViewerInfo](b, "viewers"); len(viewers) > 0 {
		t.Errorf("viewers %+v", viewers)
	}
	kinds := b.events()
	for kind, n := range map[string]int{"cinema.viewer.joined": 3, "cinema.viewer.left": 3, "cinema.egress-agent.added": 2} {
		if got := len(slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k != kind })); got != n {
			t.Errorf("%d events %s, want %d: %v", got, kind, n, kinds)
		}
	}
}

// TestGrantAndBurst checks that the answer names the sources of packets, and that the ingress
// gateway is asked for the packets since the last key frame of a new channel. For a channel
// that is not new this happens only on request, and at a limited rate.
func TestGrantAndBurst(t *testing.T) {
	b := newBench(t)
	ask := func(burst bool, channels ...string) *gatewayapi.Granted {
		t.Helper()
		tells(b.east, id(1), 6000, channels...)
		out, err := b.service.changeViewer(t.Context(), &gatewayapi.Wanted{Gateway: "east", Viewer: id(1), Port: 6000, Channels: channels, Burst: burst})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := ask(false, "a"); len(out.Channels) != 1 || out.Channels[0].From.String() != "10.0.0.1:20001" {
		t.Errorf("granted %+v", out)
	}
	if out := ask(true, "b", "a"); len(out.Channels) != 2 || out.Channels[0].From.String() != "10.0.0.1:20002" {
		t.Errorf("granted %+v", out)
	}
	b.eventually("a burst is asked for", func() bool { return slices.Equal(b.studio.asked(), []string{"b to 10.0.0.2:6000"}) })
	ask(false, "b")
	began := time.Now()
	for range 20 {
		ask(true, "b")
	}
	most := 2 + int(time.Since(began)/burstEvery)
	b.eventually("what was lost is asked for", func() bool { return len(b.studio.asked()) >= 2 })
	if got := b.studio.asked(); len(got) > most || got[1] != got[0] {
		t.Errorf("bursts %v", got)
	}
}

// TestManyAtOnce checks that many viewers of two channels who change in the same millisecond
// have their channels when they are answered, and that the switches get fewer messages than
// there are viewers.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t)
	var applied sync.Map
	b.ledger.SetOnApply(func(_ context.Context, key string) error {
		n, _ := applied.LoadOrStore(key, new(int))
		*n.(*int)++ // calls for one key do not overlap
		return nil
	})
	const viewers = 100
	for round, channels := range [][]string{{"a"}, {"b", "a"}, {"b"}} {
		var all sync.WaitGroup
		for i := range viewers {
			h := []*fakeEgress{b.east, b.west}[i%2]
			all.Go(func() {
				if err := b.want(h, i, uint16(6000+i), channels...); err != nil {
					t.Errorf("round %d, viewer %d: %v", round, i, err)
				}
				if to, _ := b.copies(channels[0]); !slices.Contains(to, fmt.Sprintf("%v:%d", h.addr, 6000+i)) {
					t.Errorf("round %d, viewer %d is answered and does not get %s", round, i, channels[0])
				}
			})
		}
		all.Wait()
	}
	b.awaitCopies("a")
	if to, links := b.copies("b"); len(to) != viewers || links != 2 {
		t.Errorf("b is copied to %d over %d links", len(to), links)
	}
	applied.Range(func(key, n any) bool {
		t.Logf("%v applied %d times for %d viewers", key, *n.(*int), viewers)
		return true
	})
}

// TestLinkCut checks that a channel is rerouted around a broken link, that a repaired link
// moves nothing, and that viewers are told why if there is no link left.
func TestLinkCut(t *testing.T) {
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	change := func(top *network.Topology) {
		b.net.SetTopology(top)
		b.service.NetworkChanged(network.Event{Kind: network.LinkDown})
	}
	change(triangle(2, [2]openflow.DatapathID{1, 2}))
	b.eventually("the channel goes round", func() bool { to, links := b.copies("a"); return links == 2 && len(to) == 1 })
	change(triangle(3))
	b.mustWant(b.east, 2, 6001, "a")
	b.expect("a", 2, "10.0.0.2:6000", "10.0.0.2:6001")
	change(triangle(4, [2]openflow.DatapathID{1, 2}, [2]openflow.DatapathID{2, 3}))
	b.eventually("nothing gets there", func() bool { to, _ := b.copies("a"); return len(to) == 0 })
	if why := b.trouble("a"); !strings.Contains(why, "gateway east") || !strings.Contains(why, tree.ErrNoPath.Error()) {
		t.Errorf("trouble %q", why)
	}
	if err := b.want(b.east, 3, 6002, "a"); err == nil || !strings.Contains(err.Error(), tree.ErrNoPath.Error()) {
		t.Errorf("a viewer beyond: %v", err)
	}
	tells(b.east, id(3), 6002)
	b.mustWant(b.west, 4, 6000, "a")
	change(triangle(5))
	b.awaitCopies("a", "10.0.0.2:6000", "10.0.0.2:6001", "10.0.0.3:6000")
	if why := b.trouble("a"); why != "" {
		t.Errorf("trouble %q", why)
	}
	if kinds := b.events(); !slices.Contains(kinds, "cinema.tree.changed") || !slices.Contains(kinds, "cinema.tree.refused") {
		t.Errorf("events %v", kinds)
	}
}

// TestNoRoom checks that new viewers are refused with the link and the figures if links lack
// room, and that present viewers keep their channels.
func TestNoRoom(t *testing.T) {
	b := newBench(t)
	b.net.set(func() { b.net.capacity = 6e6 })
	b.mustWant(b.east, 1, 6000, "a")
	b.net.SetTopology(triangle(2, [2]openflow.DatapathID{2, 3}))
	status, body := b.asAgent("east", "POST", "wanted", fmt.Sprintf(`{"gateway": "east", "viewer": "%s", "port": 6001, "channels": ["b"]}`, id(2)))
	if status != http.StatusConflict || !strings.Contains(body, "link 0000000000000001/2: 2Mbit wanted, 1Mbit of the 3Mbit for channels are left") || !strings.Contains(body, "body.channels") {
		t.Errorf("%d %s", status, body)
	}
	b.expect("a", 1, "10.0.0.2:6000")
	b.expect("b", 0)
	if n := b.service.viewers.countWatching("b"); n != 0 {
		t.Errorf("%d viewers of what cannot be", n)
	}
	b.mustWant(b.west, 3, 6000, "b")
	b.expect("b", 1, "10.0.0.3:6000")
	for _, l := range get[[]LinkInfo](b, "links") {
		want := LinkInfo{Link: l.Link, To: l.To, Most: 3e6}
		if l.Link == "0000000000000001/2" || l.Link == "0000000000000001/3" {
			want.Channels, want.Kept = 1, 2e6
		}
		if l != want {
			t.Errorf("link %+v, want %+v", l, want)
		}
	}
	b.net.set(func() { b.net.l2 = true })
	if err := b.want(b.west, 4, 6001, "a"); err == nil || !strings.Contains(err.Error(), "cannot rewrite") {
		t.Errorf("a switch that cannot rewrite: %v", err)
	}
}

// TestGatewayLost checks that a lost gateway has no viewers until it is heard again, and that
// one removed by an operator has none at all.
func TestGatewayLost(t *testing.T) {
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	b.mustWant(b.west, 2, 6000, "a")
	b.east.end()
	b.awaitCopies("a", "10.0.0.3:6000")
	if n := b.service.viewers.countWatching("a"); n != 1 {
		t.Errorf("%d viewers", n)
	}
	for n, channel := range map[int]string{1: "b", 3: "a"} {
		status, body := b.asAgent("east", "POST", "wanted", fmt.Sprintf(`{"gateway": "east", "viewer": "%s", "port": %d, "channels": [%q]}`, id(n), 5999+n, channel))
		if status != http.StatusConflict || !strings.Contains(body, "body.gateway") || !strings.Contains(body, "does not hear from this one") {
			t.Errorf("viewer %d of a gateway that is away: %d %s", n, status, body)
		}
	}
	if err := b.service.egress.Remove(t.Context(), "west", true); err != nil {
		t.Fatal(err)
	}
	b.awaitCopies("a")
	if n := b.service.viewers.countAt("west"); n != 0 {
		t.Errorf("%d viewers of a gateway that is removed", n)
	}
}

// TestIngressLost checks that a channel whose ingress gateway is lost goes to another one, and
// that its viewers stay.
func TestIngressLost(t *testing.T) {
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	spare := newStudio(t, "spare", westAddr.Next())
	b.net.SetHost(host(spare.addr, 3))
	b.register("ingress", "spare", spare.url, spare.addr)
	b.gatewaysUp()
	b.studio.end()
	b.eventually("the spare has the channels", func() bool { return len(spare.list()) == 2 })
	b.eventually("the channel comes from there", func() bool {
		p := b.ledger.Program("a")
		return len(p.Rules) == 2 && slices.ContainsFunc(p.Rules, func(r network.Rule) bool {
			src, _ := r.Match.Get(openflow.FieldIPv4Src)
			return r.Switch == 3 && src.Addr() == spare.addr
		})
	})
	b.awaitCopies("a", "10.0.0.2:6000")
	if kinds := b.events(); !slices.Contains(kinds, "cinema.ingress-agent.silent") {
		t.Errorf("events %v", kinds)
	}
}

// TestIngressRefuses checks that a gateway's error is reported as the channel's trouble, and
// that the request is repeated.
func TestIngressRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.eventually("the ingress gateway has the channels", func() bool { return len(b.studio.list()) == 2 })
	b.studio.fails(control.BadRequest("source", "there is no such file"))
	status, body := b.ask("POST", "channels", `{"name": "c", "number": 3, "bit_rate": "1Mbit", "source": "file:/gone.mp4"}`)
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	b.eventually("the trouble is told", func() bool { return strings.Contains(b.trouble("c"), "no such file") })
	b.studio.fails(nil)
	b.eventually("it has the channel", func() bool { return len(b.studio.list()) == 3 && b.trouble("c") == "" })
	if status, body := b.ask("DELETE", "channels/c", ""); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, body)
	}
	b.eventually("it has it no longer", func() bool { return len(b.studio.list()) == 2 })
}

// TestSwitchDisconnected checks that a switch that is disconnected from the controller goes on copying,
// and that a request that it cannot confirm is not answered as if it had.
func TestSwitchDisconnected(t *testing.T) {
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	full := triangle(2)
	b.net.SetTopology(topology.New(3, []openflow.DatapathID{1, 3}, full.Links))
	b.service.NetworkChanged(network.Event{Kind: network.SwitchDown, Switch: 2})
	err := b.want(b.east, 2, 6001, "a")
	if statusOf(err) != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "0000000000000002 before gateway east") {
		t.Errorf("a viewer behind it: %v", err)
	}
	b.expect("a", 1, "10.0.0.2:6000", "10.0.0.2:6001")
	b.mustWant(b.west, 3, 6000, "a")
	b.net.SetTopology(full)
	b.mustWant(b.east, 2, 6001, "a", "b")
	b.expect("a", 2, "10.0.0.2:6000", "10.0.0.2:6001", "10.0.0.3:6000")
}

// TestSwitchDoesNotConfirm checks that only the viewer's answer fails if a switch does not
// confirm.
func TestSwitchDoesNotConfirm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "b")
	confirms := make(chan struct{})
	b.ledger.SetOnApply(func(ctx context.Context, key string) error {
		if key != "a" {
			return nil
		}
		select {
		case <-confirms:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	stuck := make(chan error, 1)
	go func() { stuck <- b.want(b.east, 2, 6001, "a") }()
	b.mustWant(b.west, 3, 6000, "b")
	b.expect("b", 2, "10.0.0.2:6000", "10.0.0.3:6000")
	if err := <-stuck; err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "do not have the rules yet") {
		t.Error(err)
	}
	if err := b.want(b.east, 2, 6001, "a"); statusOf(err) != http.StatusServiceUnavailable {
		t.Errorf("asked again: %v", err)
	}
	close(confirms)
	b.mustWant(b.east, 2, 6001, "a")
	b.expect("a", 1, "10.0.0.2:6001")
}
