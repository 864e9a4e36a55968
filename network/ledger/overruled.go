package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// maxCompared bounds the comparisons of matches for one question: some tens of
// milliseconds.
const maxCompared = 200_000

// above is a rule of another owner that comes before a place in the pipeline.
type above struct {
	match       openflow.Match
	owner, name string
	tables      bool // the switch has tables
}

// Overruled says, for each of several lists of matches, which other owners have rules for
// such packets, on any switch, that come before the owner's own at a place in the pipeline.
// Rules that only say what may come in, and from where, are left out. Where there are very
// many rules, not all are looked at.
func (l *Ledger) Overruled(o *Owner, stage rule.Stage, offset uint16, of [][]openflow.Match) [][]rule.Overruling {
	if len(of) == 0 {
		return nil
	}
	names := make([]map[by]map[string]bool, len(of))
	compared := 0
	for _, a := range l.above(o, stage.Base()+offset) {
		for i, matches := range of {
			from := by{a.owner, a.tables}
			if names[i][from][a.name] {
				continue
			}
			if compared += len(matches); compared > maxCompared {
				return overrulings(names)
			}
			if !slices.ContainsFunc(matches, a.match.Overlaps) {
				continue
			}
			if names[i] == nil {
				names[i] = map[by]map[string]bool{}
			}
			if names[i][from] == nil {
				names[i][from] = map[string]bool{}
			}
			names[i][from][a.name] = true
		}
	}
	return overrulings(names)
}

// by is whose rules, on switches with tables or with one.
type by struct {
	owner  string
	tables bool
}

// overrulings puts names of rules in order. What is so on switches of both kinds is said
// once for each.
func overrulings(names []map[by]map[string]bool) [][]rule.Overruling {
	out := make([][]rule.Overruling, len(names))
	for i, all := range names {
		for from, of := range all {
			out[i] = append(out[i], rule.Overruling{Owner: from.owner, Name: slices.Min(slices.Collect(maps.Keys(of))), Names: len(of), Tables: from.tables})
		}
		slices.SortFunc(out[i], func(a, b rule.Overruling) int {
			return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(b2i(a.Tables), b2i(b.Tables)))
		})
	}
	return out
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// above lists the rules of other owners with a higher priority that decide about packets,
// or have a service asked about them. With tables that is the order too: what stands in an
// earlier table is above, but for devices, of which handover says in the packet-in chain
// that nobody else has them.
func (l *Ledger) above(o *Owner, priority uint16) (out []above) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.switches {
		for _, e := range s.rules {
			if e.owner != o && e.Rule.Priority() > priority && decides(&e.Rule) {
				out = append(out, above{e.Rule.Match, e.owner.Name, e.keys[0], s.layout.Tables()})
			}
		}
	}
	return out
}

// decides says whether a rule decides what becomes of packets that others may want, or has
// that asked.
func decides(r *rule.Rule) bool {
	switch r.Stage {
	case rule.StageWay, rule.StageRewrite, rule.StageDevice:
		return true
	case rule.StageSelect:
		return r.Offset < rule.SelectAgent
	}
	return false
}
