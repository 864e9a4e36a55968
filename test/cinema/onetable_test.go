package cinema

import (
	"testing"

	"github.com/sluice-net/sluice/lab/testbed"
)

// TestOneTable checks that on switches with one flow table, too, a channel is on a link once,
// viewers change without harm to others, and nothing is left behind.
func TestOneTable(t *testing.T) {
	begin(t, "ffmpeg")
	top, roles := testbed.CinemaNetwork("cinema-onetable", link)
	for i := range top.Switches {
		top.Switches[i].Tables = 1
	}
	roles["out1"], roles["out2"] = testbed.CinemaOwn, testbed.CinemaOwn
	w := newWorld(t, top, roles)
	w.lightChannels(2)
	west, east := newRawGateway(w, "out1"), newRawGateway(w, "out2")
	var all []*rawViewer
	for range 4 {
		all = append(all, west.join("c1"))
	}
	all[0].got(10)
	w.oncePerLink(all[0])
	bystanders := []*rawViewer{west.join("c2"), east.join("c1"), east.join("c2")}
	for range 10 {
		for _, change := range [][]string{{"c2", "c1"}, {"c2"}, {"c1", "c2"}, {"c1"}} {
			w.must(all[0].watch(t.Context(), change...))
		}
	}
	for _, v := range append(bystanders, all[1:]...) {
		v.got(10)
		w.whole("a bystander", v.sum())
	}
	for _, v := range append(bystanders, all...) {
		v.got(10)
		v.leave()
	}
	w.nothingLeft()
}
