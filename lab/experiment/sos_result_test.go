package experiment

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestAgentsResultShowsCPU checks that the CPU of table 3.4.1 stands beside ours.
func TestAgentsResultShowsCPU(t *testing.T) {
	r := agentsResult([]int{1, 2}, map[int]*agentsSamples{
		1: {rates: []float64{100e6}, senders: []float64{10}, receivers: []float64{12}},
		2: {rates: []float64{190e6}, senders: []float64{21}, receivers: []float64{23}},
	})
	if got, want := r.Tables[1].Rows[1], []string{"2", "507 ± 47", "460 ± 45", "21", "23"}; !slices.Equal(got, want) {
		t.Errorf("CPU of two pairs: %q, want %q", got, want)
	}
	if c := r.Claims[0]; !c.Met || c.Result != "1.90 times" {
		t.Errorf("two pairs that carry 1.9 times as much as one: %+v", c)
	}
}

// TestCrossing checks the share that the queue has dropped and the mean queueing delay between two
// readings of a link's statistics.
func TestCrossing(t *testing.T) {
	c := crossingOf(
		delayline.Stats{DeliveredPackets: 1000, Dropped: 7, QueueSeconds: 3},
		delayline.Stats{DeliveredPackets: 1200, Dropped: 17, QueueSeconds: 5, LateMax: time.Second},
	)
	if want := (crossing{dropped: 10, delivered: 200, queued: 10 * time.Millisecond, late: time.Second}); c != want || c.dropShare() != 0.05 {
		t.Errorf("%+v with a share of %v, want %+v", c, c.dropShare(), want)
	}
	if c := crossingOf(delayline.Stats{}, delayline.Stats{}); c != (crossing{}) || c.dropShare() != 0 {
		t.Errorf("no packets: %+v", c)
	}
}

func TestStartIdeal(t *testing.T) {
	for way, want := range map[string]time.Duration{
		wayKnownPath: 4300 * time.Millisecond,
		wayTwice:     8300 * time.Millisecond,
		// By 2.15 s, 1.85 s at 300 Mbit/s have carried 69.375 MB. The other 80.625 MB take 4.3 s.
		wayHalved: 6450 * time.Millisecond,
		// By 4.15 s, 3.85 s at 150 Mbit/s have carried 72.1875 MB. The other 77.8125 MB take 2.075 s.
		wayDoubled: 6225 * time.Millisecond,
	} {
		if got := (startCell{megabytes: 150, way: way}).ideal(); (got - want).Abs() > time.Microsecond {
			t.Errorf("150 MB by %s take %v at best, want %v", way, got, want)
		}
	}
}

// TestStartPlan checks that a quick run leaves out the long transfers during which the link changes,
// and that asking for nothing else is refused.
func TestStartPlan(t *testing.T) {
	p, err := planStart(&Env{Scale: Quick})
	if err != nil || !slices.Equal(p.megabytes, []int{1, 5}) || slices.Contains(p.ways, wayHalved) || !slices.Contains(p.ways, wayKnownPath) {
		t.Errorf("quick: %+v %v", p, err)
	}
	p, err = planStart(&Env{Scale: Normal})
	if err != nil || len(p.cells()) != 2*2*(5*7+2*2+2) {
		t.Errorf("normal: %d transfers, %v", len(p.cells()), err)
	}
	if _, err := planStart(&Env{Scale: Quick, Only: Only{"way": {wayHalved}}}); err == nil || !strings.Contains(err.Error(), "size=50") {
		t.Errorf("only transfers that are too short: %v", err)
	}
}

// TestStartClaims checks which claims a transfer over a known path is held to, with runs that
// narrowly meet or miss them.
func TestStartClaims(t *testing.T) {
	c := startCell{startLossOfDemo, directionDown, 100, wayKnownPath}
	p := startPlan{losses: []float64{c.loss}, megabytes: []int{c.megabytes}, directions: []string{c.direction}, ways: []string{c.way}}
	run := startRun{c.ideal() * 100 / 86, crossing{dropped: 1, delivered: 100, queued: 9 * time.Millisecond}}
	var missed []string
	claims := func(change func(*startRun)) *Result {
		missed = nil
		changed := run
		change(&changed)
		r := startResult(p, map[startCell][]startRun{c: {changed}})
		for _, c := range r.Claims {
			if !c.Met {
				missed = append(missed, c.Text)
			}
		}
		return r
	}
	r := claims(func(*startRun) {})
	if len(r.Claims) != 3 || len(missed) > 0 {
		t.Errorf("%+v", r.Claims)
	}
	if got, want := r.Tables[0].Rows[0][2], "3.45 (86 %; 1.0 %; 9 ms)"; got != want {
		t.Errorf("the table tells %q, want %q", got, want)
	}
	for word, change := range map[string]func(*startRun){
		"85 %":    func(r *startRun) { r.took = c.ideal() * 100 / 84 },
		"dropped": func(r *startRun) { r.dropped = 3 },
		"10ms":    func(r *startRun) { r.queued = 11 * time.Millisecond },
	} {
		if claims(change); len(missed) != 1 || !strings.Contains(missed[0], word) {
			t.Errorf("missed %q, want the claim with %q", missed, word)
		}
	}
}

// TestPeersClaims checks that every cell counts for SOS's claims, and that a run without other ways
// has those that concern SOS alone.
func TestPeersClaims(t *testing.T) {
	run := func(share float64, dropped uint64) peerRun {
		return peerRun{testbed.Goodput{BitsPerSecond: share * peersLine.payload()}, crossing{dropped: dropped, delivered: 1000}}
	}
	rtt, sos, direct := 50*time.Millisecond, peer{name: "SOS", sos: true}, peer{name: "direct"}
	cells := map[peerCell]peerRun{
		{rtt, 0, "SOS"}: run(0.97, 1), {rtt, 0, "direct"}: run(0.98, 90),
		{rtt, 1e-3, "SOS"}: run(0.92, 19), {rtt, 1e-3, "direct"}: run(0.1, 90),
	}
	met := func(peers ...peer) (all []bool) {
		for _, c := range peersResult([]time.Duration{rtt}, []float64{0, 1e-3}, peers, cells).Claims {
			all = append(all, c.Met)
		}
		return all
	}
	if got := met(direct, sos); !slices.Equal(got, []bool{true, true, true}) {
		t.Errorf("good figures meet %v", got)
	}
	cells[peerCell{rtt, 1e-3, "SOS"}] = run(0.89, 21)
	if got := met(direct, sos); !slices.Equal(got, []bool{false, false, true}) {
		t.Errorf("bad figures at 0.1 %% loss meet %v", got)
	}
	if got := met(sos); !slices.Equal(got, []bool{false, false}) {
		t.Errorf("bad figures of SOS alone meet %v", got)
	}
	if got := met(direct); got != nil {
		t.Errorf("without SOS: %v", got)
	}
}

// TestNeighboursClaims checks that only the polite share is held to leaving a direct connection
// what it is due, and that the medians of the runs count for sessions that share the link.
func TestNeighboursClaims(t *testing.T) {
	p := neighbourPlan{
		megabytes: []int{5}, congestion: []string{"cubic"}, beside: []string{waySOS, wayProxy},
		shares: []agentapi.Share{agentapi.SharePolite, agentapi.ShareAll}, when: []string{whenBefore, whenAfter},
	}
	took := map[neighbourCell][]float64{}
	for _, c := range p.cells() {
		took[c] = []float64{4}
	}
	alone := neighbourCell{congestion: "cubic", megabytes: 5}.alone()
	if took[alone] == nil || len(took) != 1+3*2 {
		t.Fatalf("cells: %v", took)
	}
	took[alone] = []float64{2}
	payload := startLine.payload()
	good := sharedLink{
		together: []float64{0.1 * payload, 0.94 * payload, 0.95 * payload}, jain: []float64{0.5, 0.96, 0.97},
		late: []float64{0, 0.09 * payload, 0.1 * payload}, light: 1, heavy: heavyWeight,
	}
	r := neighboursResult(p, startLine, took, good)
	var missed []string
	for _, c := range r.Claims {
		if !c.Met {
			missed = append(missed, c.Text)
		}
	}
	if len(r.Claims) != 2+4 || len(missed) != 2 || !strings.Contains(missed[0], "begun before SOS (polite)") || !strings.Contains(missed[1], "begun after SOS (polite)") {
		t.Errorf("%d claims, missed: %q", len(r.Claims), missed)
	}
	if got, want := r.Tables[0].Rows[1], []string{"cubic", "5", "2.00", "SOS (all)", "4.00 (50 %)", "4.00 (50 %)"}; !slices.Equal(got, want) {
		t.Errorf("beside SOS that does not yield: %q, want %q", got, want)
	}
}
