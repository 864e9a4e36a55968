package experiment

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/critical"
)

// TestPublishedRuns checks that the appendix has 30 runs of 20 flows, of which 354 were accepted,
// and that in three runs more were accepted than can be promised their rate.
func TestPublishedRuns(t *testing.T) {
	runs, err := publishedRuns()
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	var over []int
	for number := 1; number <= 30; number++ {
		if len(runs[number]) != 20 {
			t.Errorf("run %d has %d flows", number, len(runs[number]))
		}
		accepted += (&acceptanceRun{published: runs[number]}).theirs().ever
		if !promisable(runs[number]) {
			over = append(over, number)
		}
	}
	if accepted != 354 || !slices.Equal(over, []int{21, 28, 29}) {
		t.Errorf("%d accepted, not promisable in %v", accepted, over)
	}
}

func TestDisjoint(t *testing.T) {
	for _, c := range []struct {
		pairs [][2]string
		want  bool
	}{
		{[][2]string{{"s1", "s2"}, {"s1", "s2"}}, true},                // one directly, one by s3
		{[][2]string{{"s1", "s2"}, {"s1", "s3"}, {"s1", "s4"}}, false}, // s1 has two links
		{[][2]string{{"s1", "s2"}, {"s2", "s1"}, {"s1", "s3"}, {"s3", "s1"}}, true},
		{[][2]string{{"s2", "s5"}, {"s2", "s4"}, {"s1", "s5"}}, false}, // s5 has two links, and a flow to s4 needs one of them or of those that lead there
	} {
		if got := disjoint(c.pairs, map[[2]string]bool{}); got != c.want {
			t.Errorf("%v: %v", c.pairs, got)
		}
	}
}

// TestKeptPercent checks that a flow counts only once it has settled, or has recovered from meters,
// and that it is counted in frames.
func TestKeptPercent(t *testing.T) {
	begin := time.Now()
	log := &testbed.BulkLog{Begin: begin}
	share := 0.97
	for step := range 100 { // ten seconds, in the first of which nothing arrives
		at := time.Duration(step)*100*time.Millisecond + time.Millisecond
		if step >= 10 {
			log.Add(at, int(share*required*payloadShare/8/10))
		}
	}
	log.Add(10*time.Second, 1)
	o := &qosOutcome{qosFlow: qosFlow{critical: true, to: "h1"}, log: log}
	if _, ok := o.keptPercent(); ok {
		t.Error("a flow that was promised nothing has kept something")
	}
	o.place = &critical.Record{State: critical.StateAccepted, Since: begin, Accepted: begin.Add(20 * time.Millisecond)}
	if v, ok := o.keptPercent(); !ok || v < 100*share-0.1 || v > 100*share+0.1 {
		t.Errorf("kept %.2f %%, %v", v, ok)
	}
	o.place.Accepted = begin.Add(7 * time.Second)
	if _, ok := o.keptPercent(); ok {
		t.Error("a second is not enough to tell")
	}
	if ever, atOnce := o.accepted(); !ever || atOnce {
		t.Errorf("accepted after seven seconds: %v, %v", ever, atOnce)
	}
}

func TestDestination(t *testing.T) {
	if a, ok := destination("tcp 10.0.0.1:40000 > 10.0.0.2:5001"); !ok || a != netip.MustParseAddrPort("10.0.0.2:5001") {
		t.Errorf("%v, %v", a, ok)
	}
	if _, ok := destination("0x88cc 02:00:00:00:00:01 > 02:00:00:00:00:02"); ok {
		t.Error("a flow without ports has a destination")
	}
}
