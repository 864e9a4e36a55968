package agent

import (
	"context"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/pathrate"
)

// TestLimits checks that a path of which nothing is known gets the rate of its links and its share
// of it, keeps both while nothing is sent, and loses the limit when that expires or is removed. The
// rate is not written to the file, because the path has not shown it.
func TestLimits(t *testing.T) {
	x, now := newTestPacers(), time.Now()
	path := netip.MustParseAddrPort("192.0.2.1:7001")
	set := func(list ...agentapi.Limit) []agentapi.PathStatus {
		return x.setLimits(agentapi.Limits{Limits: list, Lifetime: agentapi.Duration(5 * time.Second)}, now)
	}
	half := agentapi.Limit{Peer: path.Addr(), Port: path.Port(), Pace: 80e6, Rate: 160e6}
	if got := set(half); len(got) != 0 {
		t.Errorf("of a path that was never used: %+v", got)
	}
	p := x.of(path)
	check := func(what string, rate, pace float64) {
		t.Helper()
		if got := p.control.Rate(); math.Abs(got-rate) > 1 {
			t.Errorf("%s: a rate of %.0f bytes a second, want %.0f", what, got, rate)
		}
		if got := p.control.Pace(); got > pace || got < 0.9*pace {
			t.Errorf("%s: a pace of %.0f bytes a second, want up to %.0f", what, got, pace)
		}
	}
	p.retryRate(now)
	check("at first", 20e6, 10e6)
	now = now.Add(3 * time.Second)
	p.retryRate(now)
	check("after a rest", 20e6, 10e6)
	if p.expired(now) || len(x.stored(now)) > 0 {
		t.Errorf("a rate that the controller knows is doubtful, or stored: %v", x.stored(now))
	}
	if got := set(half); len(got) != 1 || got[0].Rate != 160e6 || got[0].Limit != 80e6 {
		t.Errorf("the report is %+v", got)
	}
	set()
	check("alone again", 20e6, 20e6)
	set(half)
	check("no more alone", 20e6, 10e6)
	p.applyLimit(now.Add(5 * time.Second))
	check("the controller has ended", 20e6, 20e6)
	half.Pace = 0
	set(half)
	if check("nothing limits the pace", 20e6, 20e6); !p.control.Shared() {
		t.Error("the path is not known to be shared")
	}

	p = x.of(netip.AddrPortFrom(path.Addr(), 7002))
	p.restore(storedPath{Rate: 5e6, RTT: 100_000, Segment: 1448, Seen: now}, now)
	p.setLimit(limit{pace: 4e6, rate: 20e6, until: now.Add(time.Second)}, now)
	check("a path that is known", 5e6, 4e6)
}

// TestLimitedPathIsNotSure checks that what a path delivers beside others is not taken as shown.
func TestLimitedPathIsNotSure(t *testing.T) {
	p, now := newPacer(nil), time.Now()
	p.retryRate(now)
	p.setLimit(limit{pace: math.Inf(1), until: now.Add(time.Second)}, now)
	const half = 10e6
	for i := range uint64(400) {
		at := time.Duration(i+1) * 10 * time.Millisecond
		p.control.Update(pathrate.Sample{At: at, Delivered: uint64(half * at.Seconds()), RTT: 100 * time.Millisecond, MinRTT: 50 * time.Millisecond})
	}
	if p.control.Sure() || p.control.Rate() == 0 {
		t.Errorf("a rate of %.0f bytes a second, sure: %v", p.control.Rate(), p.control.Sure())
	}
	p.setLimit(limit{pace: half, rate: 2 * half, until: now.Add(time.Second)}, now)
	if p.control.Rate() != 2*half {
		t.Errorf("the links carry %.0f bytes a second, and the rate is %.0f", 2*half, p.control.Rate())
	}
}

// TestLimitsRequest checks that the control server takes limits, and refuses those that are not
// bounded.
func TestLimitsRequest(t *testing.T) {
	p := newPair(t, nil)
	peer := netip.MustParseAddr("192.0.2.1")
	lifetime := agentapi.Duration(5 * time.Second)
	one := agentapi.Limit{Peer: peer, Port: 7001, Pace: 1e8, Rate: 2e8}
	for what, c := range map[string]struct {
		limits agentapi.Limits
		ok     bool
	}{
		"one":            {agentapi.Limits{Limits: []agentapi.Limit{one}, Lifetime: lifetime}, true},
		"none":           {agentapi.Limits{Lifetime: lifetime}, true},
		"for ever":       {agentapi.Limits{Limits: []agentapi.Limit{one}}, false},
		"for an hour":    {agentapi.Limits{Limits: []agentapi.Limit{one}, Lifetime: agentapi.Duration(time.Hour)}, false},
		"no peer":        {agentapi.Limits{Limits: []agentapi.Limit{{Port: 7001}}, Lifetime: lifetime}, false},
		"no port":        {agentapi.Limits{Limits: []agentapi.Limit{{Peer: peer}}, Lifetime: lifetime}, false},
		"beyond measure": {agentapi.Limits{Limits: []agentapi.Limit{{Peer: peer, Port: 1, Pace: 1 << 60}}, Lifetime: lifetime}, false},
		"too many":       {agentapi.Limits{Limits: make([]agentapi.Limit, agentapi.MaxLimits+1), Lifetime: lifetime}, false},
	} {
		_, err := p.toX.Limit(context.Background(), c.limits)
		if c.ok && err != nil || !c.ok && control.CodeOf(err) != control.CodeBadRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
}
