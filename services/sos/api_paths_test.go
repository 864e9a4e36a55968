package sos

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestPaths checks that an agent's report of its paths is shown, and that an agent that does not
// run or does not answer is named.
func TestPaths(t *testing.T) {
	b := newRestBench(t)
	b.x.paths = []agentapi.PathStatus{{
		Peer: netip.MustParseAddr("10.0.0.4"), Port: 7001, Rate: 286_000_000, RTT: control.Duration(150 * time.Millisecond),
		Source: agentapi.SourceDeclared, Loss: 0.001, Pace: 283_000_000, Delivered: 140_000_000, Limit: 284_000_000, Sessions: 2, Phase: "hold",
	}}
	for _, c := range []struct {
		path   string
		status int
		want   []string
	}{
		{"agents/x/paths", http.StatusOK, []string{`"peer":"10.0.0.4"`, `"bits_per_second":286000000`, `"rtt":"150ms"`, `"pace_bits_per_second":283000000`, `"phase":"hold"`, `"source":"declared"`, `"loss":0.001`, `"delivered_bits_per_second":140000000`, `"limit_bits_per_second":284000000`}},
		{"agents/y/paths", http.StatusOK, []string{"[]"}},
		{"agents/nobody/paths", http.StatusNotFound, []string{"nobody"}},
	} {
		status, text := b.ask("GET", c.path, "")
		for _, want := range c.want {
			if status != c.status || !strings.Contains(text, want) {
				t.Errorf("%s: %d %s, want %d and %s", c.path, status, text, c.status, want)
			}
		}
	}
	b.y.kill()
	if status, text := b.ask("GET", "agents/y/paths", ""); status != http.StatusServiceUnavailable || !strings.Contains(text, "agent y") {
		t.Errorf("of a dead agent: %d %s", status, text)
	}
}
