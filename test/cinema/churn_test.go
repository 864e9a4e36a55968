package cinema

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

var whole = flag.Bool("whole", false, "have viewers come and go 2,000 times, not 200")

const (
	churnChannels = 10
	churnViewers  = 50
)

// churn returns eight switches in a ring with two chords, and a gateway at each of five.
func churn(t *testing.T) *world {
	t.Helper()
	begin(t, "ffmpeg")
	top := lab.Ring("cinema-churn", 8, link)
	for _, chord := range [][2]string{{"s1", "s4"}, {"s3", "s7"}} {
		top.Links = append(top.Links, lab.Both(chord[0], chord[1], link))
	}
	roles := map[string]testbed.CinemaRole{
		"h1": testbed.CinemaIngress, "h5": testbed.CinemaIngress,
		"h3": testbed.CinemaOwn, "h6": testbed.CinemaOwn, "h8": testbed.CinemaOwn,
	}
	for i := range top.Hosts {
		top.Hosts[i].Agent = roles[top.Hosts[i].Name] != ""
	}
	w := newWorld(t, top, roles)
	for i := range churnChannels {
		w.must(w.AddChannel(t.Context(), cinema.ChannelSpec{
			Name: fmt.Sprintf("c%d", i+1), Number: i + 1, Source: lightSource, BitRate: lightRate,
		}))
	}
	w.must(w.WaitOnAir(t.Context()))
	return w
}

// TestChurn lets viewers join, change and leave at random. Whenever they pause, it checks that
// the switches forward each channel over the links of its tree, once, and over no others.
func TestChurn(t *testing.T) {
	w := churn(t)
	gateways := []*rawGateway{newRawGateway(w, "h3"), newRawGateway(w, "h6"), newRawGateway(w, "h8")}
	rounds := 5
	if *whole {
		rounds = 50
	}
	r := rand.New(rand.NewPCG(1, 2))
	channel := func() string { return fmt.Sprintf("c%d", 1+r.IntN(churnChannels)) }
	var all []*rawViewer
	compared := 0
	for range rounds {
		for range 40 {
			switch n := len(all); {
			case n < churnViewers && (n == 0 || r.IntN(3) > 0):
				all = append(all, gateways[r.IntN(len(gateways))].join(channel()))
			case r.IntN(2) == 0:
				next := channel()
				v := all[r.IntN(n)]
				if old := v.channels[0]; old != next {
					w.must(v.watch(t.Context(), next, old))
				}
				w.must(v.watch(t.Context(), next))
			default:
				i := r.IntN(n)
				all[i].leave()
				all = slices.Delete(all, i, i+1)
			}
		}
		compared += len(w.hasPlan())
	}
	t.Logf("%d viewers at the end; trees compared with the switches: %d", len(all), compared)
	w.allGot(all, 5)
	for _, v := range all {
		if s := v.sum(); s.doubled > 0 {
			t.Errorf("a viewer got %d of %d packets twice", s.doubled, s.packets)
		}
		v.leave()
	}
	w.nothingLeft()
}

// trees returns the present trees of the channels.
func (w *world) trees() map[string]cinema.TreeInfo {
	w.t.Helper()
	var list []cinema.TreeInfo
	w.must(w.Get(w.t.Context(), "/api/v1/cinema/trees", &list))
	all := map[string]cinema.TreeInfo{}
	for _, x := range list {
		all[x.Channel] = x
	}
	return all
}

// hasPlan compares the rules of the switches with the trees, when no tree is moving, and
// returns the links of each channel.
func (w *world) hasPlan() map[string][]string {
	w.t.Helper()
	links := map[string][]string{}
	w.must(testbed.Poll(w.t.Context(), "trees that stay while the switches are looked at", func() error {
		trees, installed := w.trees(), w.installed()
		for channel, x := range w.trees() {
			if len(x.Former) > 0 || !slices.Equal(x.Links, trees[channel].Links) {
				return fmt.Errorf("%s moves to %v from %v", channel, x.Links, x.Former)
			}
			links[channel] = x.Links
			if got := installed[channel]; !slices.Equal(got, slices.Sorted(slices.Values(x.Links))) {
				return fmt.Errorf("%s: the switches lead it over %v, the tree over %v", channel, got, x.Links)
			}
		}
		return nil
	}))
	return links
}

func (w *world) portOf(name string, port int) string {
	return fmt.Sprintf("%016x/%d", w.lab.Switch(name).DPID(), port)
}

var (
	channelRule = regexp.MustCompile(`tp_src=(\d+),tp_dst=5004 .*actions=(\S+)`)
	outputOf    = regexp.MustCompile(`output:(\d+)`)
)

// installed returns the links to which the switches' rules forward each channel, sorted. A link
// that two rules of a switch use is there twice.
func (w *world) installed() map[string][]string {
	w.t.Helper()
	out := map[string][]string{}
	for _, s := range w.lab.Topology().Switches {
		for _, rule := range channelRule.FindAllStringSubmatch(w.ofctl(s.Name, "dump-flows"), -1) {
			source, err := strconv.Atoi(rule[1])
			w.must(err)
			channel := fmt.Sprintf("c%d", source-int(gatewayapi.SourcePort(0)))
			for _, to := range outputOf.FindAllStringSubmatch(rule[2], -1) {
				port, err := strconv.Atoi(to[1])
				w.must(err)
				out[channel] = append(out[channel], w.portOf(s.Name, port))
			}
		}
	}
	for _, links := range out {
		slices.Sort(links)
	}
	return out
}
