package plugin

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/service/agents"
	"github.com/sluice-net/sluice/service/control"
)

// spare is another ingress gateway, at switch 3, for so many channels at most; 0: it decides.
func (b *bench) spare(most int) *studio {
	b.t.Helper()
	other := newStudio(b.t, "spare", westAddr.Next())
	b.net.SetHost(host(other.addr, 3))
	if err := b.service.sources.registry.Add(b.t.Context(), agents.AgentRecord{Name: "spare", URL: other.url, Addrs: []netip.Addr{other.addr}, MaxSessions: most}); err != nil {
		b.t.Fatal(err)
	}
	b.gatewaysUp()
	return other
}

// at is the ingress gateway that has a channel.
func (b *bench) at(channel string) string { return get[ChannelInfo](b, "channels/"+channel).At }

// An ingress gateway that drains keeps the channels that it has, though the controller is
// started again or gives it up for a moment, and whether another could have them or not.
func TestDrainingKeepsItsChannels(t *testing.T) {
	again := func(b *bench) {
		b.restart()
		b.eventually("it is ready", func() bool { return b.ledger.AtReady() != nil })
	}
	lost := func(b *bench) {
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
		event func(*bench)
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

// A channel that has no gateway stays where it is, and one that is no more, or was declared to
// be elsewhere, does not.
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

// add declares a channel of a tenth of a megabit.
func (b *bench) add(name string, number int) {
	b.t.Helper()
	status, body := b.ask("POST", "channels", fmt.Sprintf(`{"name": %q, "number": %d, "bit_rate": "100kbit", "source": "test:"}`, name, number))
	if status != http.StatusCreated {
		b.t.Fatalf("%d %s", status, body)
	}
}

// An ingress gateway is given as many channels as it takes, and the next goes to another.
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

// A channel that an ingress gateway has no room for goes to another one and stays there; one
// that none has room for says so, is offered to each once in a while, and goes where there is
// room again.
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
