package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// The faults of flow tables.
const (
	ForeignRules Fault = "foreign-rules" // rules of somebody else precede the controller's
	NoTable      Fault = "no-table"      // a table takes no rules
	TableFull    Fault = "table-full"    // a table is nearly full
)

// nearlyFullShare is the share of used entries from which a table is reported.
const nearlyFullShare = 0.9

// Tables returns the faults of a switch's flow tables. capacity holds the number of rules that
// each table takes, as far as the switch reports it; ours reports whether a cookie is one of
// Sluice's.
func Tables(d openflow.DatapathID, rules []openflow.FlowStats, capacity map[uint8]uint32, ours func(cookie uint64) bool) (out []Finding) {
	at := topology.PortRef{Switch: d}
	used, lowest := map[uint8]int{}, map[uint8]uint16{} // lowest priority of our rules
	for _, r := range rules {
		used[r.Table]++
		if low, ok := lowest[r.Table]; ours(r.Cookie) && (!ok || r.Priority < low) {
			lowest[r.Table] = r.Priority
		}
	}
	var before []openflow.FlowStats
	for _, r := range rules {
		if low, ok := lowest[r.Table]; !ours(r.Cookie) && ok && r.Priority > low {
			before = append(before, r)
		}
	}
	if len(before) > 0 {
		first := slices.MaxFunc(before, func(a, b openflow.FlowStats) int { return cmp.Compare(a.Priority, b.Priority) })
		out = append(out, Finding{
			Fault: ForeignRules, Level: Fail, From: at,
			Found:  fmt.Sprintf("%d rules of somebody else come before the controller's, the first in table %d with priority %d and cookie %#x: %v", len(before), first.Table, first.Priority, first.Cookie, &first.Match),
			Remedy: "look for another controller on this switch, a script, or rules of the switch's own configuration, and have them taken out: what they match the controller does not see",
		})
	}
	for table, takes := range capacity {
		switch n := used[table]; {
		case takes == 0 && table == 0:
			out = append(out, Finding{
				Fault: NoTable, Level: Fail, From: at, Found: "table 0 takes no rules at all",
				Remedy: "give the OpenFlow table room in the switch's table profile (TCAM carving), and restart the switch if its manual says so",
			})
		case n > 0 && float64(n) >= nearlyFullShare*float64(takes):
			out = append(out, Finding{
				Fault: TableFull, Level: Warn, From: at, Found: fmt.Sprintf("table %d has %d rules of %d", table, n, takes),
				Remedy: "give the table more room in the switch's table profile, let rules of unused flows go sooner (network.forwarding.idle_timeout), or bound them (network.forwarding.max_rules): what does not fit goes by the controller, packet by packet",
			})
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return cmp.Compare(a.Found, b.Found) })
	return out
}
