package cinema

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

const (
	// pictureSource and bitRate are for channels that a browser shows. They are small enough
	// for a machine of two cores that draws, encodes, decodes and shows several of them.
	pictureSource = "test:?size=320x180&rate=15"
	bitRate       = 1_000_000
	// lightSource and lightRate are for channels whose packets are counted: some 65 packets a
	// second, so that a busy machine loses none of them.
	lightSource = "test:?size=96x64&rate=10"
	lightRate   = 200_000
)

// world is the network with the controller and gateways.
type world struct {
	*testbed.Deployment
	t   *testing.T
	lab *lab.Lab
	log string
	// drops counts the packets that the machine had dropped when the deployment was up.
	drops testbed.Drops
}

func newWorld(t *testing.T, top lab.Topology, roles map[string]testbed.CinemaRole) *world {
	t.Helper()
	return newWorldWith(t, top, roles, "cinema: {enabled: true}\n")
}

// newWorldWith starts a world with additional sections of the controller's configuration.
func newWorldWith(t *testing.T, top lab.Topology, roles map[string]testbed.CinemaRole, services string) *world {
	t.Helper()
	return newWorldOf(t, testbed.Options{Lab: lab.New(t, top), Gateways: roles, Services: services})
}

// newWorldOf starts a world with a deployment.
func newWorldOf(t *testing.T, o testbed.Options) *world {
	t.Helper()
	w := &world{t: t, lab: o.Lab, log: t.TempDir()}
	o.Binary, o.LogDir = selfbuild.Binary(t), w.log
	var err error
	w.Deployment, err = testbed.Deploy(context.WithoutCancel(t.Context()), o)
	w.must(err)
	w.drops, err = testbed.CountDrops(t.Context(), w.lab)
	w.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, of := range append([]string{"controller"}, hosts(o.Gateways)...) {
				t.Logf("%s: %s", of, testbed.Tail(fmt.Sprintf("%s/%s.log", w.log, of), 20))
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func hosts(roles map[string]testbed.CinemaRole) (names []string) {
	for name := range roles {
		names = append(names, name)
	}
	return names
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// channels declares test patterns 1 to n, and waits until they are live.
func (w *world) channels(n int) {
	w.t.Helper()
	for i := range n {
		w.must(w.AddChannel(w.t.Context(), cinema.ChannelSpec{Name: fmt.Sprintf("c%d", i+1), Number: i + 1, Source: pictureSource, BitRate: bitRate}))
	}
	w.must(w.WaitOnAir(w.t.Context()))
}

// lightChannels declares channels 1 to n whose packets are counted, each at its ingress gateway
// if one is named, and waits until they are live.
func (w *world) lightChannels(n int, ingress ...string) {
	w.t.Helper()
	for i := range n {
		spec := cinema.ChannelSpec{Name: fmt.Sprintf("c%d", i+1), Number: i + 1, Source: lightSource, BitRate: lightRate}
		if i < len(ingress) {
			spec.Ingress = ingress[i]
		}
		w.must(w.AddChannel(w.t.Context(), spec))
	}
	w.must(w.WaitOnAir(w.t.Context()))
}

// whole fails the test if a viewer got a packet twice, or lost one that the machine has not
// dropped: a full socket or backlog says nothing about the switches' rules.
func (w *world) whole(who string, s counts) {
	w.t.Helper()
	if s.doubled > 0 {
		w.t.Errorf("%s got %d of %d packets twice", who, s.doubled, s.packets)
	}
	if s.lost == 0 {
		return
	}
	now, err := testbed.CountDrops(context.WithoutCancel(w.t.Context()), w.lab)
	w.must(err)
	if dropped := now.Since(w.drops); dropped != (testbed.Drops{}) {
		w.t.Logf("%s lost %d of %d packets, but the machine has dropped some: %+v", who, s.lost, s.packets, dropped)
		return
	}
	w.t.Errorf("%s lost %d of %d packets", who, s.lost, s.packets)
}

// nothingLeft waits until no switch has a group or a rule of a channel.
func (w *world) nothingLeft() {
	w.t.Helper()
	w.must(testbed.Poll(w.t.Context(), "the switches to have nothing of channels", func() error {
		for _, s := range w.lab.Topology().Switches {
			if groups := w.ofctl(s.Name, "dump-groups"); strings.Contains(groups, "group_id=") {
				return fmt.Errorf("%s has %s", s.Name, groups)
			}
			if flows := w.ofctl(s.Name, "dump-flows"); strings.Contains(flows, "tp_dst=5004") {
				return fmt.Errorf("%s has %s", s.Name, flows)
			}
		}
		return nil
	}))
}

// ofctl queries a switch with Open vSwitch's own tool.
func (w *world) ofctl(name, command string) string {
	w.t.Helper()
	out, err := w.lab.Switch(name).Ofctl(w.t.Context(), command)
	w.must(err)
	return out
}

// begin marks a live test that may run in parallel, and skips it where a program is missing.
func begin(t *testing.T, programs ...string) {
	t.Helper()
	live.Test(t)
	t.Parallel()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT TESTED: %s is missing", p)
		}
	}
}

// link holds the parameters of the links between switches.
var link = delayline.Params{Rate: 100e6, Delay: time.Millisecond}
