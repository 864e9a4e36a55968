package diagnosis_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/openflow"
)

func TestTables(t *testing.T) {
	const mine, others = 1, 2
	rule := func(table uint8, priority uint16, cookie uint64) openflow.FlowStats {
		return openflow.FlowStats{Table: table, Priority: priority, Cookie: cookie}
	}
	many := func(n int, r openflow.FlowStats) (all []openflow.FlowStats) {
		for range n {
			all = append(all, r)
		}
		return all
	}
	room := map[uint8]uint32{0: 100}
	for name, c := range map[string]struct {
		rules    []openflow.FlowStats
		capacity map[uint8]uint32
		want     string // the faults
	}{
		"ours alone":                    {many(50, rule(0, 10, mine)), room, ""},
		"theirs below":                  {[]openflow.FlowStats{rule(0, 10, mine), rule(0, 9, others)}, room, ""},
		"theirs where ours stand":       {[]openflow.FlowStats{rule(0, 10, mine), rule(0, 10, others)}, room, ""},
		"theirs above one of ours":      {[]openflow.FlowStats{rule(0, 10, mine), rule(0, 100, mine), rule(0, 11, others)}, room, "foreign-rules"},
		"theirs in a table without any": {[]openflow.FlowStats{rule(0, 10, mine), rule(1, 11, others)}, room, ""},
		"nearly full":                   {many(90, rule(0, 10, mine)), room, "table-full"},
		"not quite":                     {many(89, rule(0, 10, mine)), room, ""},
		"nobody says how large":         {many(1000, rule(0, 10, mine)), nil, ""},
		"carved to nothing":             {nil, map[uint8]uint32{0: 0}, "no-table"},
		"another that is not used":      {many(1, rule(0, 10, mine)), map[uint8]uint32{0: 100, 1: 0}, ""},
		"both":                          {append(many(95, rule(0, 10, mine)), rule(0, 11, others)), room, "foreign-rules table-full"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range diagnosis.Tables(7, c.rules, c.capacity, func(cookie uint64) bool { return cookie == mine }) {
				got = append(got, string(f.Fault))
				if f.From.Switch != 7 || f.From.Port != 0 || f.Found == "" || f.Remedy == "" {
					t.Errorf("%+v", f)
				}
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("found %q, want %q", s, c.want)
			}
		})
	}
}
