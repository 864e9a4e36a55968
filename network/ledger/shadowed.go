package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// maxCompared limits the comparisons of matches in one call of Shadowed, so that the call takes some
// tens of milliseconds at most.
const maxCompared = 200_000

// precedingRule is a rule of another owner that comes before the stage and offset in question.
type precedingRule struct {
	match       openflow.Match
	owner, name string
	tables      bool // whether the switch has several tables
	rewrites    bool // whether the rule changes headers
}

// Shadowed returns, for each list of matches in of, the other owners whose rules would shadow rules
// of the owner with these matches, at this stage and offset. A rule shadows another one if it comes
// first for some of the same packets, on any switch. Shadowed leaves out rules that only admit
// packets, or check where packets come from. If there are very many rules, it does not compare all
// of them.
func (l *Ledger) Shadowed(o *Owner, stage rule.Stage, offset uint16, of [][]openflow.Match) [][]rule.Shadowing {
	if len(of) == 0 {
		return nil
	}
	all := make([]map[string]*ownerRules, len(of)) // by owner
	compared := 0
	for _, a := range l.precedingRules(o, stage.Base()+offset) {
		for i, matches := range of {
			o := all[i][a.owner]
			if o != nil && o.names[a.name] && *o.on(a.tables) && (o.rewrites || !a.rewrites) {
				continue
			}
			if compared += len(matches); compared > maxCompared {
				return sortByOwner(all)
			}
			if !slices.ContainsFunc(matches, a.match.Overlaps) {
				continue
			}
			if all[i] == nil {
				all[i] = map[string]*ownerRules{}
			}
			if o == nil {
				o = &ownerRules{names: map[string]bool{}}
				all[i][a.owner] = o
			}
			o.names[a.name], *o.on(a.tables) = true, true
			o.rewrites = o.rewrites || a.rewrites
		}
	}
	return sortByOwner(all)
}

// ownerRules collects the names of one owner's shadowing rules, and the kinds of switches that
// have them.
type ownerRules struct {
	names            map[string]bool
	oneTable, tables bool
	rewrites         bool
}

// on returns the flag for switches with several tables or with one.
func (o *ownerRules) on(tables bool) *bool {
	if tables {
		return &o.tables
	}
	return &o.oneTable
}

// sortByOwner turns the collected rules into lists that are sorted by owner.
func sortByOwner(all []map[string]*ownerRules) [][]rule.Shadowing {
	out := make([][]rule.Shadowing, len(all))
	for i, byOwner := range all {
		for owner, of := range byOwner {
			out[i] = append(out[i], rule.Shadowing{
				Owner: owner, Name: slices.Min(slices.Collect(maps.Keys(of.names))), Names: len(of.names), OneTable: of.oneTable, Tables: of.tables,
				Rewrites: of.rewrites,
			})
		}
		slices.SortFunc(out[i], func(a, b rule.Shadowing) int { return cmp.Compare(a.Owner, b.Owner) })
	}
	return out
}

// precedingRules returns the rules of other owners with a higher priority that take packets, or
// ask a service about them. This order also holds on switches with several tables, where a rule
// in an earlier table comes first. Rules for mobile devices are the exception there: they only
// forward, and a service handles a device's packets at the border, in an earlier table.
func (l *Ledger) precedingRules(o *Owner, priority uint16) (out []precedingRule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.switches {
		for _, e := range s.rules {
			leads := s.layout.Tables() && e.Rule.Stage == rule.StageDevice
			if e.owner != o && e.Rule.Priority() > priority && takesPackets(&e.Rule) && !leads {
				out = append(out, precedingRule{e.Rule.Match, e.owner.Name, e.keys[0], s.layout.Tables(), rewrites(&e.Rule)})
			}
		}
	}
	return out
}

// rewrites reports whether a rule changes headers of the packets that it matches.
func rewrites(r *rule.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a openflow.Action) bool { return a.Type == openflow.ActionSetField })
}

// takesPackets reports whether a rule decides, or asks a service to decide, where packets go that
// other owners may want to forward.
func takesPackets(r *rule.Rule) bool {
	switch r.Stage {
	case rule.StageWay, rule.StageRewrite, rule.StageDevice:
		return true
	case rule.StageSelect:
		return r.Offset < rule.SelectAgent
	}
	return false
}
