package cinema

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
)

// spare adds another ingress gateway, at switch 3, that accepts at most most channels; 0 means
// that it sets no limit.
func (b *harness) spare(most int) *fakeIngress {
	b.t.Helper()
	other := newStudio(b.t, "spare", westAddr.Next())
	b.net.SetHost(host(other.addr, 3))
	if err := b.service.sources.registry.Add(b.t.Context(), agents.AgentRecord{Name: "spare", URL: other.url, Addrs: []netip.Addr{other.addr}, MaxSessions: most}); err != nil {
		b.t.Fatal(err)
	}
	b.gatewaysUp()
	return other
}

// at returns the ingress gateway of a channel.
func (b *harness) at(channel string) string { return get[ChannelInfo](b, "channels/"+channel).At }

// TestDrainingKeepsItsChannels checks that a draining ingress gateway keeps its channels,
// although the controller is restarted or loses it for a moment, and whether or not another
// gateway has room for them.
func TestDrainingKeepsItsChannels(t *testing.T) {
	again := func(b *harness) {
		b.restart()
		b.eventually("it is ready", func() bool { return b.ledger.AtReady() != nil })
	}
	lost := func(b *harness) {
		s := b.service.sources
		s.gatewayLost(s.registry.Get("studio"), nil, errors.New("for a moment"))
		b.eventually("it has told what it has", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.states["studio"] != nil && len(s.states["studio"].reported) == 2
		})
	}
	for _, c := range []struct {
		name  string
		spare bool
		event func(*harness)
	}{{"restart", false, again}, {"restart beside another", true, again}, {"lost", false, lost}} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.eventually("the ingress gateway has the channels", func() bool { return len(b.studio.list()) == 2 })
			if c.spare {
				b.spare(0)
			}
			if err := b.service.sources.registry.Drain(t.Context(), "studio", true); err != nil {
				t.Fatal(err)
			}
			c.event(b)
			for _, channel := range []string{"a", "b"} {
				b.eventually(channel+" has a gateway", func() bool { return b.at(channel) != "" })
				if at := b.at(channel); at != "studio" {
					t.Errorf("%s is at %s", channel, at)
				}
			}
			if _, drop := b.service.sources.diff(b.service.sources.registry.Get("studio")); len(drop) > 0 {
				t.Errorf("it is to drop %v", drop)
			}
		})
	}
}

// TestDropsNoneWithoutAnother checks that a channel without an assignment stays where it is,
// and that one that was deleted, or declared for another gateway, does not.
func TestDropsNoneWithoutAnother(t *testing.T) {
	b := newBench(t)
	b.eventually("the ingress gateway has the channels", func() bool { return len(b.studio.list()) == 2 })
	s := b.service.sources
	studio := s.registry.Get("studio")
	b.net.set(func() { b.net.gate = 1e6 })
	b.service.Channels.Wake()
	b.eventually("there is no room for the channels", func() bool { return b.at("a") == "" && b.at("b") == "" })
	if _, drop := s.diff(studio); len(drop) > 0 {
		t.Errorf("it is to drop %v", drop)
	}
	a := b.configured["a"]
	a.Ingress = "elsewhere"
	b.configured = map[string]Channel{"a": a}
	if err := b.service.Channels.Configure(t.Context(), b.configured); err != nil {
		t.Fatal(err)
	}
	b.eventually("it has none any more", func() bool { return len(b.studio.list()) == 0 })
	if st := studio.State(); st.Liveness != agents.Up || !slices.Equal(s.channelsOf("studio"), nil) {
		t.Errorf("%+v is to have %v", st, s.channelsOf("studio"))
	}
}

// add declares a channel of 100 kbit/s.
func (b *harness) add(name string, number int) {
	b.t.Helper()
	status, body := b.ask("POST", "channels", fmt.Sprintf(`{"name": %q, "number": %d, "bit_rate": "100kbit", "source": "test:"}`, name, number))
	if status != http.StatusCreated {
		b.t.Fatalf("%d %s", status, body)
	}
}

// TestIngressFull checks that an ingress gateway is given no more channels than it accepts, and
// that the next one goes to another gateway.
func TestIngressFull(t *testing.T) {
	b := newBench(t)
	b.eventually("the ingress gateway has the channels", func() bool { return len(b.studio.list()) == 2 })
	b.spare(1)
	b.add("c", 3)
	b.eventually("c is where least is", func() bool { return b.at("c") == "spare" })
	b.add("d", 4)
	b.eventually("d is where there is room", func() bool { return b.at("d") == "studio" })
	if err := b.service.sources.registry.Drain(t.Context(), "studio", true); err != nil {
		t.Fatal(err)
	}
	b.add("e", 5)
	b.eventually("e has no room", func() bool {
		said := b.trouble("e")
		return strings.Contains(said, "spare has 1 channels, as many as it takes") && strings.Contains(said, "studio is draining") && b.at("e") == ""
	})
}

// TestIngressHasNoRoom checks that a channel for which its ingress gateway has no room goes to
// another one and stays there. One for which none has room reports that, is offered to each
// again after a while, and goes where there is room.
func TestIngressHasNoRoom(t *testing.T) {
	b := newBench(t)
	b.eventually("the ingress gateway has the channels", func() bool { return len(b.studio.list()) == 2 })
	spare := b.spare(0)
	began := time.Now()
	full := &control.Problem{Title: "the gateway is full", Code: control.CodeFull, Detail: "1 channels"}
	spare.fails(full)
	b.add("c", 3)
	b.eventually("the other tells of c", func() bool {
		told, at := b.service.sources.channelState("c")
		return at == "studio" && told.Name == "c"
	})
	b.studio.fails(&control.Problem{Title: "the gateway is draining", Code: control.CodeDraining})
	b.add("d", 4)
	b.eventually("d is nowhere", func() bool {
		said := b.trouble("d")
		return strings.Contains(said, "spare refuses it") && strings.Contains(said, "the gateway is full: 1 channels") && strings.Contains(said, "studio refuses it") && b.at("d") == ""
	})
	if n, most := spare.fails(full), 2+2*int(time.Since(began)/capacityRefusalTTL); n < 1 || n > most {
		t.Errorf("it has refused %d times, want 1 to %d", n, most)
	}
	if at := b.at("c"); at != "studio" {
		t.Errorf("c is at %s", at)
	}
	spare.fails(nil)
	s := b.service.sources
	s.mu.Lock()
	s.states["spare"].refused["d"] = capacityRefusal{at: time.Now().Add(-capacityRefusalTTL)}
	s.mu.Unlock()
	b.eventually("d is where there is room again", func() bool { return b.at("d") == "spare" && len(spare.list()) == 1 })
}
