package network

import (
	"slices"

	"github.com/sluice-net/sluice/network/multipath"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// pathTable is one switch's rules by destination.
type pathTable map[openflow.Match]pathRule

// pathRule is one of them, with the group to which it leads, if it does. Groups of one
// number are alike.
type pathRule struct {
	rule  rule.Rule
	group *rule.Group
}

// has says whether a rule is there as it is.
func (t pathTable) has(r rule.Rule) bool {
	was, some := t[r.Match]
	return some && slices.Equal(was.rule.Actions, r.Actions)
}

// keep has the numbers of the table's groups not be used for others.
func (t pathTable) keep(p *multipath.Planner) {
	t.groups(func(g *rule.Group) { p.Keep(g) })
}

func (t pathTable) groups(each func(*rule.Group)) {
	seen := map[uint32]bool{}
	for _, r := range t {
		if r.group != nil && !seen[r.group.ID] {
			seen[r.group.ID] = true
			each(r.group)
		}
	}
}

// program is the table as rules and groups.
func (t pathTable) program() (out Program) {
	out.Rules = make([]rule.Rule, 0, len(t))
	for _, r := range t {
		out.Rules = append(out.Rules, r.rule)
	}
	t.groups(func(g *rule.Group) { out.Groups = append(out.Groups, *g) })
	return out
}
