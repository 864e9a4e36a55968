package sos

import (
	"fmt"
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
		Peer: agentY.Addr(), Port: 7001, Rate: 286_000_000, RTT: control.Duration(150 * time.Millisecond),
		Source: agentapi.SourceDeclared, Loss: 0.001, Pace: 283_000_000, Delivered: 140_000_000, Limit: 284_000_000, Sessions: 2, Phase: "hold",
	}}
	b.y.paths = []agentapi.PathStatus{{Peer: netip.MustParseAddr("192.0.2.9"), Port: 7001}}
	for _, c := range []struct {
		path   string
		status int
		want   []string
	}{
		{"agents/x/paths", http.StatusOK, []string{`"agent":"x","peer_agent":"y"`, fmt.Sprintf(`"peer":"%v"`, agentY.Addr()), `"bits_per_second":286000000`, `"rtt":"150ms"`, `"pace_bits_per_second":283000000`, `"phase":"hold"`, `"source":"declared"`, `"loss":0.001`, `"delivered_bits_per_second":140000000`, `"limit_bits_per_second":284000000`}},
		{"agents/y/paths", http.StatusOK, []string{`"peer":"192.0.2.9"`}},
		{"paths", http.StatusOK, []string{`"agent":"x","peer_agent":"y"`, `{"agent":"y","peer":"192.0.2.9","port":7001`, `"unanswered":[]`}},
		{"agents/nobody/paths", http.StatusNotFound, []string{"nobody"}},
	} {
		status, text := b.ask("GET", c.path, "")
		for _, want := range c.want {
			if status != c.status || !strings.Contains(text, want) {
				t.Errorf("%s: %d %s, want %d and %s", c.path, status, text, c.status, want)
			}
		}
	}
	b.y.noPaths.Store(true)
	if status, text := b.ask("GET", "paths", ""); status != http.StatusOK || !strings.Contains(text, `"agent":"x"`) || !strings.Contains(text, `"unanswered":["agent y does not list its paths: `) {
		t.Errorf("beside an agent that fails: %d %s", status, text)
	}
	b.y.kill()
	if status, text := b.ask("GET", "agents/y/paths", ""); status != http.StatusServiceUnavailable || !strings.Contains(text, "agent y") {
		t.Errorf("of a dead agent: %d %s", status, text)
	}
	if status, text := b.ask("GET", "paths", ""); status != http.StatusOK || !strings.Contains(text, `"agent":"x"`) || strings.Contains(text, `"agent":"y"`) {
		t.Errorf("beside a dead agent: %d %s", status, text)
	}
}
