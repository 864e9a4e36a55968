package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/qos/bandwidth"
)

// ratedSquare is square with trunks that carry no more than they are told to. Their queues
// take what the meters of three flows let through at once, a quarter of a second of each.
func ratedSquare() lab.Topology {
	t := square()
	for i, l := range t.Links {
		if strings.HasPrefix(l.A.Node, "s") {
			t.Links[i] = lab.Both(l.A.Node, l.B.Node, delayline.Params{Rate: trunk, Queue: 384 << 10})
		}
	}
	return t
}

// rudeness is how many times its promise an impolite flow sends.
const rudeness = 3

// An accepted flow that sends three times what it was promised does not take it from two
// others that were accepted on the same link.
func TestExcessHarmsNobodyElse(t *testing.T) {
	w := newCriticalWorldOn(t, ratedSquare())
	if err := w.lab.SetLink(t.Context(), "s1-s3", false); err != nil {
		t.Fatal(err)
	}
	w.eventually("one way is left", func() bool { return len(w.net.Topology().Links) == 6 })
	w.define(4_000_000)
	polite := stage.StreamOptions{Rate: 330, Size: 1400} // 3.8 Mbit/s with all headers
	first, second := w.streamOf("a1", "b1", polite), w.streamOf("a2", "b2", polite)
	w.placed(2)
	rude := w.streamOf("a3", "b3", stage.StreamOptions{Rate: rudeness * 330, Size: 1400})
	for _, f := range w.placed(3) {
		if f.State != bandwidth.StateAccepted {
			t.Fatalf("%+v", f)
		}
	}
	w.eventually("the excess is told", func() bool {
		f := w.placed(3)[2]
		return f.Excess > 6_000_000 && strings.Contains(f.Reason, "drops")
	})
	begin := time.Now()
	pause.For(5*time.Second, "losses are counted for so long")
	end := time.Now()
	for i, s := range []*stage.Stream{first, second} {
		r := s.Stop().Between(begin, end)
		t.Logf("polite flow %d: %d of %d packets lost", i+1, r.Lost, r.Sent)
		if r.Lost*100 > r.Sent {
			t.Errorf("polite flow %d lost %d of %d packets", i+1, r.Lost, r.Sent)
		}
	}
	r := rude.Stop().Between(begin, end)
	t.Logf("rude flow: %d of %d packets lost", r.Lost, r.Sent)
	if arrived := float64(r.Sent-r.Lost) * 1442 * 8 / 5; arrived < 3.9e6 || arrived > 4.2e6 {
		t.Errorf("%.0f bit/s of the rude flow arrived, 4 Mbit/s were promised", arrived)
	}
}

// After a restart with links of half their rate, what was promised does not fit any more:
// of two flows one keeps its promise, and the other says which link has too little.
func TestCriticalOnLessCapacity(t *testing.T) {
	w := newCriticalWorld(t)
	if err := w.lab.SetLink(t.Context(), "s1-s3", false); err != nil {
		t.Fatal(err)
	}
	w.eventually("one way is left", func() bool { return len(w.net.Topology().Links) == 6 })
	w.define(7_000_000)
	for i, few := range []string{"1", "2"} {
		s := w.streamOf("a"+few, "b"+few, stage.StreamOptions{Rate: 100})
		defer s.Stop()
		if all := w.placed(i + 1); all[i].State != bandwidth.StateAccepted {
			t.Fatalf("%+v", all)
		}
	}
	w.stop()
	w.capacity, w.links = trunk*2/3, 6
	w.start()
	w.eventually("one gives its promise up", func() bool {
		all := w.placed(2)
		return all[0].State == bandwidth.StateAccepted && all[1].State == bandwidth.StateBestEffort && strings.Contains(all[1].Reason, "3000000 of 10000000 available")
	})
}
