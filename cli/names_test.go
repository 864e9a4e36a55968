package cli

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
)

// TestTablesUseNames checks that tables show the configured names of switches, also in reasons, and
// that the list of switches shows both names and identifiers.
func TestTablesUseNames(t *testing.T) {
	const base = "/api/v1/"
	url := fakeController(t, map[string]string{
		base + "network/switches": `[{"dpid":"00000000000000a1","name":"edge-1","since":"2026-01-01T00:00:00Z"},{"dpid":"00000000000000a2","since":"2026-01-01T00:00:00Z"}]`,
		base + "qos/flows": `[{"flow":"udp 10.0.0.1:1 > 10.0.0.2:2","definition":"video","state":"accepted","rate_bits_per_second":1000,"path":[{"switch":"00000000000000a1","in":1,"out":2},{"switch":"00000000000000a2","in":1,"out":2}]},
			{"flow":"udp 10.0.0.3:1 > 10.0.0.2:2","definition":"video","state":"best-effort","reason":"link from 00000000000000a1/12: 10 bit/s asked","rate_bits_per_second":1000,"path":[]}]`,
		base + "qos/reservations":       `[{"link":"00000000000000a1/2","capacity_bits_per_second":1000,"for":[]}]`,
		base + "qos/refusals":           `[{"switch":"00000000000000a1","reason":"full"}]`,
		base + "qos/classes/VoIP":       `{"name":"VoIP","state":"active","flows":[],"paths":[{"flow":0,"latency_milliseconds":1,"hops":[{"switch":"00000000000000a1","out":2}]}],"ports":[{"switch":"00000000000000a1","port":2}]}`,
		base + "qos/classes/VoIP/stats": `{"name":"VoIP","state":"active","queues":[{"switch":"00000000000000a1","port":2}]}`,
		base + "network/links":          `[{"from":{"switch":"00000000000000a1","port":1},"to":{"switch":"00000000000000a2","port":2}}]`,
	})
	for _, c := range []struct {
		line string
		want []string
	}{
		{"qos flows", []string{"edge-1/1>2, 00000000000000a2/1>2", "link from edge-1/12: 10 bit/s asked"}},
		{"qos reservations", []string{"edge-1/2"}},
		{"qos refusals", []string{"edge-1"}},
		{"qos classes show VoIP", []string{"1.00 ms  edge-1/2", "edge-1/2  "}},
		{"qos classes stats VoIP", []string{"edge-1/2  "}},
		{"network links", []string{"edge-1/1", "00000000000000a2/2"}},
	} {
		code, out, errOut := sluice(t, append(strings.Fields(c.line), "--server", url)...)
		if code != command.ExitOK {
			t.Fatalf("%s: exit code %d: %s", c.line, code, errOut)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) || strings.Contains(out, "00000000000000a1") {
				t.Errorf("%s does not show %q:\n%s", c.line, want, out)
			}
		}
	}
	if _, out, _ := sluice(t, "network", "switches", "--server", url); !strings.Contains(out, "00000000000000a1  edge-1") {
		t.Errorf("the list of switches does not say which is which:\n%s", out)
	}
	if _, out, _ := sluice(t, "qos", "reservations", "--json", "--server", url); !strings.Contains(out, "00000000000000a1/2") {
		t.Errorf("JSON is not what the controller answered:\n%s", out)
	}
}
