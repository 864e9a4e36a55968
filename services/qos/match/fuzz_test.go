package match

import (
	"encoding/json"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

// FuzzParse: whatever is read is refused with reasons or becomes matches that can
// be written to a switch, and reads the same when it is written out again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"ipv4_src": "10.0.0.2", "tcp_src": "5001"}`))
	f.Add([]byte(`{"in_port": 3, "vlan_vid": "none", "udp_dst": "1-65535"}`))
	f.Add([]byte(`{"eth_type": "0x86dd", "ip_proto": 58, "icmpv6_type": 135}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var flow, again Flow
		if json.Unmarshal(text, &flow) != nil {
			return
		}
		matches, faults := flow.Parse()
		if (len(matches) == 0) == (len(faults) == 0) || len(matches) > MaxMatches {
			t.Fatalf("%d matches and faults %v", len(matches), faults)
		}
		for _, m := range matches {
			if _, err := (&openflow.FlowMod{Match: m}).AppendTo(nil, 1); err != nil {
				t.Fatalf("%v cannot be encoded: %v", m, err)
			}
		}
		written, err := json.Marshal(flow)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &again); err != nil || again != flow {
			t.Fatalf("%s reads as %+v, %v", written, again, err)
		}
	})
}
