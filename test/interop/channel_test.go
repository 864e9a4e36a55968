package interop

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/sos"
)

// TestClassHoldsOnChannel has a class for what a viewer's gateway gets of a channel: the channel
// goes on, and is in the class's queue at each port of its way. With tables and in one.
func TestClassHoldsOnChannel(t *testing.T) {
	t.Parallel()
	for tables, name := range []string{"tables", "one"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holdsOnChannel(t, buildChannels(t, busy("pairtv"+name, tables)))
		})
	}
}

func holdsOnChannel(t *testing.T, w *world) {
	g := w.watch("out1", w.addr("out1"))
	w.post(classesPath, classes.ClassSpec{Name: "tv", Priority: "0", MinRate: match.Text(fmt.Sprint(int(2 * channelRate))), Flows: []match.Flow{{
		IPv4Src: match.Text(w.addr("in1").String()), IPv4Dst: match.Text(w.addr("out1").String()), IPProto: "udp",
	}}}, nil)
	ports := map[string]string{w.port("s2", "wan"): "between the sites", w.port("s1", "out1-s1"): "to the gateway"}
	w.carriedOn("tv", ports, 2*channelRate)
	w.channelGoesOn(g) // until its packets go by the rules with the class
	counted := w.queueBytes("tv")
	came := w.channelGoesOn(g)
	w.counts("tv", ports, counted, came.bytes)
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
	t.Parallel()
	w := buildChannels(t, busy("pairpage", 0))
	g := w.watch("out1", w.addr("out1"))
	page := netip.AddrPortFrom(w.addr("out2"), testbed.PublicPort)
	fetch := func() (sessions int) {
		t.Helper()
		begun := time.Now()
		_, err := testbed.Curl(t.Context(), w.lab.Host("server"), fmt.Sprintf("http://%v/", page), w.file, nil)
		w.must(err)
		return len(w.sessionsSince(begun))
	}
	if n := fetch(); n != 0 {
		t.Errorf("%d sessions carried a page that is on no whitelist", n)
	}
	_, err := w.Whitelist(t.Context(), page.Addr(), testbed.PublicPort, sos.Tuning{})
	w.must(err)
	_, err = w.Whitelist(t.Context(), media.Addr(), media.Port(), sos.Tuning{})
	w.must(err)
	w.must(testbed.Poll(t.Context(), "a carried page", func() error {
		if n := fetch(); n != 1 {
			return fmt.Errorf("%d sessions carried the page, want 1; directly went %+v", n, w.directs())
		}
		return nil
	}))
	w.nobodyAt(media)
	w.channelGoesOn(g)
	all, err := w.Sessions(t.Context())
	w.must(err)
	for _, s := range all {
		if s.Server.Port() != testbed.PublicPort {
			t.Errorf("agents carry what is no page: %+v", s)
		}
	}
}
