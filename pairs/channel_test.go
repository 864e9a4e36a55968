package pairs

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
	cinema "github.com/sluice-net/sluice/cinema/plugin"
	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/qos/latency"
	"github.com/sluice-net/sluice/qos/match"
	sos "github.com/sluice-net/sluice/sos/plugin"
)

// TestClassHoldsOnChannel floods the link that a channel takes, and its viewer loses much of it.
// With a class for what the viewer's gateway gets of it, it is in the class's queue at each
// port of its way, and nothing of it is lost. With tables and in one.
func TestClassHoldsOnChannel(t *testing.T) {
	for tables, name := range []string{"tables", "one"} {
		t.Run(name, func(t *testing.T) {
			holdsOnChannel(t, buildChannels(t, busy("pairtv"+name, tables)))
		})
	}
}

func holdsOnChannel(t *testing.T, w *world) {
	g := w.watch("out1", w.addr("out1"))
	flood, err := stage.Flood{
		From: w.lab.Host("noise"), To: w.lab.Host("client"), Dst: netip.AddrPortFrom(w.addr("client"), 9), Rate: floodRate, Bytes: 1400,
	}.Start(t.Context())
	w.must(err)
	t.Cleanup(flood.Stop)
	_ = g.during(t.Context()) // until the queues are full
	without := g.during(t.Context())

	w.post(classesPath, latency.ClassSpec{Name: "tv", Priority: "0", MinRate: match.Text(fmt.Sprint(int(2 * channelRate))), Flows: []match.Flow{{
		IPv4Src: match.Text(w.addr("in1").String()), IPv4Dst: match.Text(w.addr("out1").String()), IPProto: "udp",
	}}}, nil)
	ports := map[string]string{w.port("s2", "wan"): "between the sites", w.port("s1", "out1-s1"): "to the gateway"}
	w.carriedOn("tv", ports, 2*channelRate)
	_ = g.during(t.Context())
	counted := w.queueBytes("tv")
	with := g.during(t.Context())
	t.Logf("of the channel under a flood: %d packets came and %d were lost without the class; %d and %d with it", without.packets, without.lost, with.packets, with.lost)
	if without.lost < without.packets/20 {
		t.Errorf("without the class %d of %d were lost: the flood shows nothing", without.lost, without.packets)
	}
	if with.lost > 0 || with.packets < 100 {
		t.Errorf("with the class %d packets came, %d were lost", with.packets, with.lost)
	}
	w.must(stage.Poll(t.Context(), "the queues of the way to have counted the channel", func() error {
		now := w.queueBytes("tv")
		for at, what := range ports {
			if grown := now[at] - counted[at]; grown < with.bytes {
				return fmt.Errorf("%s (%s): its queue has sent %d bytes, %d have been received", what, at, grown, with.bytes)
			}
		}
		return nil
	}))
	w.must(g.Watch(t.Context()))
}

// media is where channels' packets go.
var media = netip.AddrPortFrom(cinema.DefaultMedia, gatewayapi.MediaPort)

// nobodyAt has a host open a connection to an address to which it knows the way: nobody answers.
func (w *world) nobodyAt(to netip.AddrPort) {
	w.t.Helper()
	h := w.lab.Host("server")
	for _, args := range [][]string{
		{"route", "replace", to.Addr().String(), "dev", "eth0"},
		{"neigh", "replace", to.Addr().String(), "lladdr", "02:00:c6:12:00:01", "dev", "eth0"},
	} {
		out, err := h.Command(w.t.Context(), "ip", args...).CombinedOutput()
		if err != nil {
			w.t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	err := h.Do(func() error {
		c, err := net.DialTimeout("tcp", to.String(), 2*time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	if err == nil {
		w.t.Errorf("somebody has answered at %v", to)
	}
}

// TestWhitelistBesideChannel has all connections to the page of viewers be carried by agents,
// and those to the address of channels, too: the page is carried, the channel goes on, and of
// its address agents carry nothing.
func TestWhitelistBesideChannel(t *testing.T) {
	w := buildChannels(t, busy("pairpage", 0))
	g := w.watch("out1", w.addr("out1"))
	page := netip.AddrPortFrom(w.addr("out2"), stage.PublicPort)
	fetch := func() (sessions int) {
		t.Helper()
		begun := time.Now()
		_, err := stage.Curl(t.Context(), w.lab.Host("server"), fmt.Sprintf("http://%v/", page), w.file, nil)
		w.must(err)
		return len(w.sessionsSince(begun))
	}
	if n := fetch(); n != 0 {
		t.Errorf("%d sessions carried a page that is on no whitelist", n)
	}
	_, err := w.Whitelist(t.Context(), page.Addr(), stage.PublicPort, sos.Tuning{})
	w.must(err)
	_, err = w.Whitelist(t.Context(), media.Addr(), media.Port(), sos.Tuning{})
	w.must(err)
	if n := fetch(); n != 1 {
		t.Errorf("%d sessions carried the page, want 1", n)
	}
	w.nobodyAt(media)
	seen := g.during(t.Context())
	t.Logf("%d packets of the channel came, %d were lost", seen.packets, seen.lost)
	if seen.packets < 100 || seen.lost > 0 {
		t.Errorf("beside the whitelist %d packets of the channel came, %d were lost", seen.packets, seen.lost)
	}
	all, err := w.Sessions(t.Context())
	w.must(err)
	for _, s := range all {
		if s.Server.Port() != stage.PublicPort {
			t.Errorf("agents carry what is no page: %+v", s)
		}
	}
}
