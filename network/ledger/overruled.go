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
	rewrites    bool // it changes headers
}

// Overruled says, for each of several lists of matches, which other owners have rules for
// such packets, on any switch, that come before the owner's own at a place in the pipeline.
// Rules that only say what may come in, and from where, are left out. Where there are very
// many rules, not all are looked at.
func (l *Ledger) Overruled(o *Owner, stage rule.Stage, offset uint16, of [][]openflow.Match) [][]rule.Overruling {
	if len(of) == 0 {
		return nil
	}
	all := make([]map[string]*overrulers, len(of)) // by owner
	compared := 0
	for _, a := range l.above(o, stage.Base()+offset) {
		for i, matches := range of {
			o := all[i][a.owner]
			if o != nil && o.names[a.name] && *o.on(a.tables) && (o.rewrites || !a.rewrites) {
				continue
			}
			if compared += len(matches); compared > maxCompared {
				return overrulings(all)
			}
			if !slices.ContainsFunc(matches, a.match.Overlaps) {
				continue
			}
			if all[i] == nil {
				all[i] = map[string]*overrulers{}
			}
			if o == nil {
				o = &overrulers{names: map[string]bool{}}
				all[i][a.owner] = o
			}
			o.names[a.name], *o.on(a.tables) = true, true
			o.rewrites = o.rewrites || a.rewrites
		}
	}
	return overrulings(all)
}

// overrulers are an owner's rules that come first, on switches with one table and with
// several.
type overrulers struct {
	names       map[string]bool
	one, tables bool
	rewrites    bool
}

func (o *overrulers) on(tables bool) *bool {
	if tables {
		return &o.tables
	}
	return &o.one
}

// overrulings puts names of rules, by owner, in order.
func overrulings(all []map[string]*overrulers) [][]rule.Overruling {
	out := make([][]rule.Overruling, len(all))
	for i, byOwner := range all {
		for owner, of := range byOwner {
			out[i] = append(out[i], rule.Overruling{
				Owner: owner, Name: slices.Min(slices.Collect(maps.Keys(of.names))), Names: len(of.names), OneTable: of.one, Tables: of.tables,
				Rewrites: of.rewrites,
			})
		}
		slices.SortFunc(out[i], func(a, b rule.Overruling) int { return cmp.Compare(a.Owner, b.Owner) })
	}
	return out
}

// above lists the rules of other owners with a higher priority that decide about packets,
// or have a service asked about them. With tables that is the order too: what stands in an
// earlier table is above, but for devices: there their rules only lead, and who has
// something to do with their packets does it at the border, in an earlier table.
func (l *Ledger) above(o *Owner, priority uint16) (out []above) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.switches {
		for _, e := range s.rules {
			leads := s.layout.Tables() && e.Rule.Stage == rule.StageDevice
			if e.owner != o && e.Rule.Priority() > priority && decides(&e.Rule) && !leads {
				out = append(out, above{e.Rule.Match, e.owner.Name, e.keys[0], s.layout.Tables(), rewrites(&e.Rule)})
			}
		}
	}
	return out
}

// rewrites reports whether a rule changes headers of the packets that it matches.
func rewrites(r *rule.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a openflow.Action) bool { return a.Type == openflow.ActionSetField })
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
