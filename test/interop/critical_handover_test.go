package interop

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

// The links between root and edges, and the one that has no room for the flow. The other
// flow asks for more than any link has.
const (
	treeRate    = 6e6
	narrowRate  = 2.4e6
	flowRate    = 3e6
	otherRate   = 8e6
	voicePort   = 6000
	otherPort   = 6001
	packetBytes = 1000
	streamPPS   = 100
)

// TestCriticalFlowToMobileDevice has a critical flow follow a device beside a flow to another
// device that has no room anywhere: where there is room the flow is placed on the way to the
// device's edge and arrives; where there is not it says so, with the link and what that lacks.
func TestCriticalFlowToMobileDevice(t *testing.T) {
	t.Parallel()
	w, dev1, dev2 := newTwoDevices(t, "pairvoice")
	w.post("/api/v1/qos/critical", critical.Spec{Name: "voice", Rate: flowRate, IdleTimeout: "30s", Match: match.Flow{UDPDst: match.Text(fmt.Sprint(voicePort))}}, nil)
	w.post("/api/v1/qos/critical", critical.Spec{Name: "other", Rate: otherRate, IdleTimeout: "30s", Match: match.Flow{UDPDst: match.Text(fmt.Sprint(otherPort))}}, nil)
	w.must(testbed.Poll(t.Context(), "the border to be asked for first packets", func() error {
		rules, err := w.lab.Switch("root").Ofctl(t.Context(), "dump-flows")
		if err == nil && !strings.Contains(rules, fmt.Sprintf("tp_dst=%d", voicePort)) {
			err = fmt.Errorf("none is there:\n%s", rules)
		}
		return err
	}))
	w.stream("dev2", dev2, otherPort)
	voice := w.stream(device, dev1, voicePort)
	border := fmt.Sprintf("%016x/", w.lab.Switch("root").DPID())
	for _, c := range []struct {
		edge  int
		state critical.State
	}{{1, critical.StateAccepted}, {4, critical.StateAccepted}, {2, critical.StateBestEffort}, {3, critical.StateAccepted}} {
		w.confine(dev1, c.edge)
		edge := w.lab.Switch(fmt.Sprintf("edge%d", c.edge)).DPID()
		var flow critical.Record
		w.must(testbed.Poll(t.Context(), fmt.Sprintf("the flow at edge%d", c.edge), func() error {
			flow = w.flowOf("voice", dev1.Addr())
			if n := len(flow.Path); n == 0 || uint64(flow.Path[n-1].Switch) != edge || flow.State != c.state {
				return fmt.Errorf("%+v", flow)
			}
			return nil
		}))
		if c.state == critical.StateBestEffort {
			if want := fmt.Sprintf("%d bit/s asked", int(flowRate)); !strings.Contains(flow.Reason, border) || !strings.Contains(flow.Reason, want) {
				t.Errorf("at edge%d it does not name the link and what it lacks: %q", c.edge, flow.Reason)
			}
			continue
		}
		w.arrives(voice)
	}
}

// newTwoDevices is a world in which a device moves, and another is at edge4; the link to
// edge2 is narrow.
func newTwoDevices(t *testing.T, name string) (w *world, dev1, dev2 *testbed.Mobile) {
	t.Helper()
	o := mobility
	o.Devices, o.Link = 2, delayline.Params{Rate: treeRate, Delay: time.Millisecond}
	topology := roaming(name, delayline.Params{}, o)
	for i := range topology.Links {
		if l := &topology.Links[i]; l.A.Node == "root" && l.B.Node == "edge2" {
			l.AtoB.Rate, l.BtoA.Rate = narrowRate, narrowRate
		}
	}
	w = buildRoaming(t, topology)
	dev1, dev2 = w.enter(device, 1), w.enter("dev2", 2)
	w.move(dev2, 2, 4)
	for edge := 1; edge <= mobility.Interfaces; edge++ { // what it sends too much is to be nowhere else
		w.must(w.lab.SetLink(t.Context(), w.radio("dev2", edge), edge == 4))
	}
	for _, edge := range []int{3, 1} { // it stays where it is sent
		w.move(dev1, 1, edge)
	}
	return w, dev1, dev2
}

// move takes a device whose first radio is at one edge to another.
func (w *world) move(m *testbed.Mobile, first, edge int) {
	w.t.Helper()
	w.must(w.tryMove(m, first, edge))
}

// confine takes the first device to an edge, and its radios at all others away: it goes nowhere
// else, also if that edge is silent for a moment.
func (w *world) confine(m *testbed.Mobile, edge int) {
	w.t.Helper()
	w.must(w.lab.SetLink(w.t.Context(), w.radio(device, edge), true))
	w.must(testbed.Poll(w.t.Context(), "the device to move", func() error { return w.tryMove(m, 1, edge) }))
	for other := 1; other <= mobility.Interfaces; other++ {
		w.must(w.lab.SetLink(w.t.Context(), w.radio(device, other), other == edge))
	}
}

// tryMove is move, which fails while there is no link.
func (w *world) tryMove(m *testbed.Mobile, first, edge int) error {
	_, err := m.Move(w.t.Context(), fmt.Sprintf("eth%d", (edge-first+mobility.Interfaces)%mobility.Interfaces))
	return err
}

// radio is the link between a device and an edge.
func (w *world) radio(host string, edge int) string {
	w.t.Helper()
	at := fmt.Sprint("edge", edge)
	for _, l := range w.lab.Topology().Links {
		if l.A.Node == host && l.B.Node == at || l.B.Node == host && l.A.Node == at {
			return l.Name
		}
	}
	w.t.Fatalf("%s has no radio at %s", host, at)
	return ""
}

// arrives waits until fifty packets of a stream that are sent from now on have arrived, each once.
func (w *world) arrives(s *testbed.Stream) {
	w.t.Helper()
	begun := time.Now()
	var r testbed.StreamReport
	w.must(testbed.Poll(w.t.Context(), "the stream to arrive", func() error {
		if r = s.Snapshot().Between(begun, time.Now()); r.Received < 50 {
			return fmt.Errorf("%d of %d packets have arrived", r.Received, r.Sent)
		}
		return nil
	}))
	if r.Doubled > 0 {
		w.t.Errorf("%d of %d packets have arrived twice", r.Doubled, r.Received)
	}
}

// stream sends to a device until the test is over.
func (w *world) stream(host string, m *testbed.Mobile, port uint16) *testbed.Stream {
	w.t.Helper()
	s, err := testbed.StartStream(context.WithoutCancel(w.t.Context()), testbed.StreamOptions{
		Sender: w.lab.Host("server"), Receiver: w.lab.Host(host), To: netip.AddrPortFrom(m.Addr(), port), Rate: streamPPS, Size: packetBytes,
	})
	w.must(err)
	w.t.Cleanup(func() { s.Stop() })
	return s
}

// flowOf is the flow of a definition at the border of a device.
func (w *world) flowOf(definition string, to netip.Addr) critical.Record {
	w.t.Helper()
	var all []critical.Record
	w.must(w.Get(w.t.Context(), "/api/v1/qos/flows", &all))
	for _, f := range all {
		if f.Definition == definition && len(f.Path) > 0 && uint64(f.Path[0].Switch) == w.lab.Switch("root").DPID() && strings.Contains(f.Flow, to.String()) {
			return f
		}
	}
	return critical.Record{}
}
