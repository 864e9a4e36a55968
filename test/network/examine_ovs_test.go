package network_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/network/networktest"
)

// between is the name of the link between two switches of a lab.
func between(t *testing.T, l *lab.Lab, a, b string) string {
	t.Helper()
	for _, k := range l.Topology().Links {
		if k.A.Node == a && k.B.Node == b || k.A.Node == b && k.B.Node == a {
			return k.Name
		}
	}
	t.Fatalf("no link between %s and %s", a, b)
	return ""
}

// Open vSwitch's links have no fault while hosts talk over them, run after run, with at
// most 100 frames each; a link of which one direction is dead, or that carries less than
// is said, is named.
func TestLinksOfOpenVSwitchAreExamined(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Ring("netexam", 3, delayline.Params{Delay: time.Millisecond}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 3, 3, 3)
	talk := l.Host("h1").Command(t.Context(), "ping", "-n", "-q", "-i", "0.01", l.Host("h2").Addr().String())
	if err := talk.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = talk.Wait() }) // after the test's context has ended it
	for range 6 {
		r := networktest.Diagnose(t, n, linkprobe.DefaultMTU)
		if len(r.Findings) > 0 || r.Links != 3 || r.MostFrames > 100 {
			t.Fatalf("a sound lab: %+v", r)
		}
		t.Logf("%d links, %d frames, at most %d a link, %v", r.Links, r.Frames, r.MostFrames, r.Ended.Sub(r.Began))
	}
	r := networktest.Diagnose(t, n, 9000)
	for _, f := range r.Findings {
		if f.Fault != linkprobe.SmallMTU || !strings.Contains(f.Found, "the MTU is said to be 9000") {
			t.Errorf("%+v", f)
		}
	}
	if len(r.Findings) != 6 || r.MostFrames > 100 {
		t.Errorf("links of 1500 bytes that are said to have 9000: %s, %d frames a link", networktest.Faults(r), r.MostFrames)
	}
	t.Logf("%+v", r.Findings[0])
	if out, err := l.Switch("s2").Ofctl(t.Context(), "add-flow", "cookie=0xbeef,priority=65000,udp,tp_dst=12345,actions=drop"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r = networktest.Diagnose(t, n, linkprobe.DefaultMTU)
	if len(r.Findings) != 1 || r.Findings[0].Fault != diagnosis.ForeignRules || !strings.Contains(r.Findings[0].Found, "0xbeef") {
		t.Errorf("a rule of somebody else: %+v", r.Findings)
	}
	if out, err := l.Switch("s2").Ofctl(t.Context(), "del-flows", "cookie=0xbeef/-1"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	link := between(t, l, "s1", "s2")
	one, other := delayline.Params{Loss: 1}, delayline.Params{}
	if err := l.SetLinkDirections(t.Context(), link, &one, &other); err != nil {
		t.Fatal(err)
	}
	r = networktest.Diagnose(t, n, linkprobe.DefaultMTU)
	if len(r.Findings) != 1 || r.Findings[0].Fault != linkprobe.OneWay || r.MostFrames > 100 || !strings.Contains(r.Findings[0].Found, "lost in between") {
		t.Errorf("a link of which one direction is dead: %+v", r.Findings)
	}
}
