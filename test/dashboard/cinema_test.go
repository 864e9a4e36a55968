package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

// channelRate is that of each channel, cinemaLink what each link between switches carries, in
// bit/s: channels may take half of it.
const channelRate, cinemaLink = 1e6, 100e6

// smallSource has pictures that two browsers on a small machine keep up with.
const smallSource = "test:?size=320x180&rate=10"

// TestCinema lets Chromium look at channels, while another Chromium watches one and changes
// to another.
func TestCinema(t *testing.T) {
	begin(t, "npm", "chromium", "ffmpeg")
	top, roles := testbed.CinemaNetwork("board-cinema", delayline.Params{Rate: cinemaLink, Delay: time.Millisecond})
	l := lab.New(t, top)
	d := deployCinema(t, l, roles)
	viewer := watchChannel(t, d, l)
	// What the visit asks for: the viewer changes channel, a link is cut and comes back.
	happen := http.NewServeMux()
	on := func(what string, do func(context.Context) error) {
		happen.HandleFunc("POST /"+what, func(w http.ResponseWriter, r *http.Request) {
			if err := do(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	on("zap", func(ctx context.Context) error { return viewer.Press(ctx, kb.ArrowUp) })
	on("cut", func(ctx context.Context) error { return l.SetLink(ctx, "s4-s1", false) })
	on("mend", func(ctx context.Context) error { return l.SetLink(ctx, "s4-s1", true) })
	server := httptest.NewServer(happen)
	t.Cleanup(server.Close)
	visit(t, "cinema", forward(t, secureAPI(t, l, d, "out1"), nil), tokenOf(t, d), "SLUICE_HAPPEN="+server.URL, "SLUICE_VIEWER="+l.Host(testbed.Viewer).Addr().String())
}

// deployCinema starts the controller and the gateways, and puts two channels on the air. A
// third has no producer, and a fourth no gateway.
func deployCinema(t *testing.T, l *lab.Lab, roles map[string]testbed.CinemaRole) *testbed.Deployment {
	t.Helper()
	d, err := testbed.Deploy(context.WithoutCancel(t.Context()), testbed.Options{
		Lab: l, Binary: selfbuild.Binary(t), LogDir: t.TempDir(), Gateways: roles,
		Network: namesAndCapacity(t, l), Services: "cinema: {enabled: true}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	add := func(c cinema.ChannelSpec) {
		c.BitRate = channelRate
		if err := d.AddChannel(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	add(cinema.ChannelSpec{Name: "news", Number: 1, Title: "The News", Source: smallSource, Ingress: "in1"})
	add(cinema.ChannelSpec{Name: "sports", Number: 2, Title: "Sports", Source: smallSource, Ingress: "in2"})
	if err := d.WaitOnAir(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(cinema.ChannelSpec{Name: "stage", Number: 3, Title: "The stage", Ingress: "in1", PublishPassword: "loud", ViewPassword: "ticket"})
	add(cinema.ChannelSpec{Name: "nowhere", Number: 4, Source: "test:", Ingress: "none"})
	return d
}

// namesAndCapacity configures the names of switches, and what the links between them carry.
func namesAndCapacity(t *testing.T, l *lab.Lab) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("  switches:\n")
	hosts := map[string]bool{}
	for _, h := range l.Topology().Hosts {
		hosts[h.Name] = true
	}
	for _, s := range l.Topology().Switches {
		fmt.Fprintf(&text, "    %016x:\n      name: %s\n      capacity:\n", l.Switch(s.Name).DPID(), s.Name)
		for _, x := range l.Topology().Links {
			if port, err := l.Switch(s.Name).Port(x.Name); err == nil && !hosts[x.A.Node] && !hosts[x.B.Node] {
				fmt.Fprintf(&text, "        %d: %v\n", port, units.Rate(cinemaLink))
			}
		}
	}
	return text.String()
}

// watchChannel has a Chromium of its own watch the first channel by out2, until the test ends.
func watchChannel(t *testing.T, d *testbed.Deployment, l *lab.Lab) *testbed.Browser {
	t.Helper()
	b, err := testbed.StartBrowser(t.Context(), l.Host(testbed.Viewer), filepath.Join(t.TempDir(), "chromium.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Open(t.Context(), d.PublicURL("out2")+"/#news"); err != nil {
		t.Fatal(err)
	}
	if err := b.WatchPictures(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Shows(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return b
}
