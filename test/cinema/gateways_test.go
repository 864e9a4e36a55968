package cinema

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

// TestIngressKilled kills an ingress gateway. What it read continues from the other one,
// viewers see it without doing anything, and the lineup names the other gateway to the
// producers.
func TestIngressKilled(t *testing.T) {
	begin(t, "ffmpeg", "chromium")
	top, roles := testbed.CinemaNetwork("cinema-ingress", link)
	w := newWorld(t, top, roles)
	w.must(w.AddChannel(t.Context(), cinema.ChannelSpec{Name: "c1", Number: 1, Source: pictureSource, BitRate: bitRate}))
	w.must(w.WaitOnAir(t.Context()))
	dies := w.channel("c1").At
	// Two channels are published: each gateway has one, whichever has c1.
	for n := 2; n <= 3; n++ {
		w.must(w.AddChannel(t.Context(), cinema.ChannelSpec{Name: fmt.Sprintf("live%d", n), Number: n, BitRate: bitRate, PublishPassword: publishPassword}))
	}
	other := map[string]string{"in1": "in2", "in2": "in1"}[dies]
	w.publishedAt("each of the gateways", func(at map[string]int) bool { return at[w.PublicURL(dies)] > 0 && at[w.PublicURL(other)] > 0 })
	p := w.browse(testbed.Viewer, w.PublicURL("out2")+"/#c1")
	p.moves(20)
	w.Agent(dies).Kill()
	killed := time.Now()
	w.must(testbed.Poll(t.Context(), "the channel to have another gateway", func() error {
		if at := w.channel("c1").At; at != other {
			return fmt.Errorf("it has %q", at)
		}
		return nil
	}))
	moved := time.Since(killed)
	p.freshAfter(killed.Add(moved))
	t.Logf("the channel had another gateway after %v, pictures came again after %v", moved, time.Since(killed))
	p.moves(20)
	w.publishedAt("the other gateway", func(at map[string]int) bool { return at[w.PublicURL(dies)] == 0 && at[w.PublicURL(other)] == 2 })
}

// publishedAt waits until channels are published at the right gateways.
func (w *world) publishedAt(what string, right func(channels map[string]int) bool) {
	w.t.Helper()
	w.must(testbed.Poll(w.t.Context(), "channels to be published at "+what, func() error {
		l, err := w.Lineup(w.t.Context())
		at := map[string]int{}
		for _, c := range l.Channels {
			if c.PublishAt != "" {
				at[c.PublishAt]++
			}
		}
		if err == nil && !right(at) {
			err = fmt.Errorf("they are at %v", at)
		}
		return err
	}))
}

// TestEgressKilled kills an egress gateway. The page that came from it continues at the other
// one.
func TestEgressKilled(t *testing.T) {
	begin(t, "ffmpeg", "chromium")
	top, roles := testbed.CinemaNetwork("cinema-egress", link)
	w := newWorld(t, top, roles)
	w.channels(1)
	p := w.browse(testbed.Viewer, w.PublicURL("out1")+"/#c1")
	p.moves(20)
	w.Agent("out1").Kill()
	killed := time.Now()
	p.is("a connection to the other gateway", "window.connections.length > 1 && window.connections.at(-1).connectionState === 'connected'")
	p.freshAfter(killed.Add(500 * time.Millisecond))
	p.moves(20)
	t.Logf("the picture stood still for %v", p.looked().still())
	w.must(testbed.Poll(t.Context(), "the viewer to be at out2 alone", func() error {
		all := w.viewers()
		if len(all) != 1 || all[0].Gateway != "out2" {
			return fmt.Errorf("there are %+v", all)
		}
		return nil
	}))
}

// channel returns a channel from the API.
func (w *world) channel(name string) (c cinema.ChannelInfo) {
	w.t.Helper()
	w.must(w.Get(w.t.Context(), "/api/v1/cinema/channels/"+name, &c))
	return c
}

// viewers returns the viewers from the API.
func (w *world) viewers() (all []cinema.ViewerInfo) {
	w.t.Helper()
	w.must(w.Get(w.t.Context(), "/api/v1/cinema/viewers", &all))
	return all
}
