package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Network is the view of the network that a trace needs.
type Network interface {
	// Rules returns the rules of a switch, and false if the switch is not known.
	Rules(openflow.DatapathID) ([]rule.Installed, bool)
	Group(openflow.DatapathID, uint32) (rule.Group, bool)
	LinkFrom(topology.PortRef) (topology.Link, bool)
	// HostsAt describes the hosts behind an edge port.
	HostsAt(topology.PortRef) []string
	// Controller describes what the controller does with a packet sent to it.
	Controller() string
}

// Trace is the path of a packet. Steps are in the order in which they were found. The first has
// no parent; for each of the others, Parent names the step whose output led there.
type Trace struct {
	Packet string `json:"packet"`
	Steps  []Step `json:"steps"`
}

// Step is the packet's passage through one switch.
type Step struct {
	Switch openflow.DatapathID `json:"switch"`
	InPort uint32              `json:"in_port"`
	// Parent is the index of the step from which the packet came, -1 for the first.
	Parent  int      `json:"parent"`
	Packet  string   `json:"packet"`
	Tables  []Lookup `json:"tables,omitempty"`
	Outputs []Output `json:"outputs,omitempty"`
	// End is the reason why the packet goes no further, if it does not.
	End string `json:"end,omitempty"`
}

// Lookup describes what one flow table does with the packet.
type Lookup struct {
	Table uint8 `json:"table"`
	// Rule is the rule that matches, nil if none does.
	Rule *RuleInfo `json:"rule,omitempty"`
	// Passed lists rules of higher priority that nearly match, the nearest first, with the field
	// that differs.
	Passed []Passed `json:"passed,omitempty"`
	// Did lists what was done to the packet besides sending it.
	Did []string `json:"did,omitempty"`
}

// RuleInfo describes a rule.
type RuleInfo struct {
	Owner    string `json:"owner"`
	Name     string `json:"name"`
	Cookie   string `json:"cookie"`
	Stage    string `json:"stage"`
	Priority uint16 `json:"priority"`
	Match    string `json:"match"`
	Actions  string `json:"actions"`
}

// Passed describes a rule that does not match, and the field that differs.
type Passed struct {
	RuleInfo
	// Want is the value that the rule matches, Have the value that the packet has instead.
	Want string `json:"want"`
	Have string `json:"have"`
}

// Output is one copy of the packet that leaves the switch.
type Output struct {
	Port string `json:"port"`
	// Via names the group that the output belongs to, with its kind, if any.
	Via string `json:"via,omitempty"`
	// Next is the index of the step to which the copy leads, -1 if the copy goes to no other switch.
	Next int `json:"next"`
	// To says where the copy goes if not to a switch: to hosts, to the controller, or nowhere.
	To string `json:"to,omitempty"`
}

// Limits of a trace.
const (
	maxSteps  = 256
	maxPassed = 3
	maxNested = 8 // groups within groups
)

// Run follows a packet that arrives at a port.
func Run(n Network, at topology.PortRef, p Packet) Trace {
	r := tracer{n: n, seen: map[string]int{}}
	t := &r.trace
	t.Packet = p.With(openflow.InPort(at.Port)).String()
	r.enqueue(at, p, -1)
	for i := 0; i < len(r.pending); i++ {
		r.step(i)
	}
	return r.trace
}

// tracer is the state of a trace in progress.
type tracer struct {
	n       Network
	trace   Trace
	pending []arrival
	seen    map[string]int
}

type arrival struct {
	at topology.PortRef
	p  Packet
}

// enqueue adds a step, or returns the index of an identical earlier step, which means that the
// packet loops.
func (r *tracer) enqueue(at topology.PortRef, p Packet, parent int) (step int, note string) {
	p = p.With(openflow.InPort(at.Port)).without(openflow.FieldMetadata)
	key := fmt.Sprint(at, p)
	if old, ok := r.seen[key]; ok {
		return old, "visited before: a loop"
	}
	if len(r.trace.Steps) >= maxSteps {
		return -1, fmt.Sprintf("given up after %d steps", maxSteps)
	}
	r.seen[key] = len(r.trace.Steps)
	r.trace.Steps = append(r.trace.Steps, Step{Switch: at.Switch, InPort: at.Port, Parent: parent, Packet: p.String()})
	r.pending = append(r.pending, arrival{at, p})
	return len(r.trace.Steps) - 1, ""
}

// step runs the packet through one switch. Outputs append to the list of steps, so the step
// itself is written back at the end.
func (r *tracer) step(i int) {
	a := r.pending[i]
	x := switchRun{r: r, i: i, at: a.at, p: a.p}
	rules, ok := r.n.Rules(a.at.Switch)
	if !ok {
		r.trace.Steps[i].End = "the switch is not connected"
		return
	}
	x.tables(rules)
	s := &r.trace.Steps[i]
	s.Tables, s.Outputs = x.lookups, x.outputs
	switch {
	case x.end != "":
		s.End = x.end
	case len(x.outputs) == 0:
		s.End = "dropped"
	}
}

// switchRun is the state of the packet's passage through one switch.
type switchRun struct {
	r       *tracer
	i       int
	at      topology.PortRef
	p       Packet
	lookups []Lookup
	outputs []Output
	end     string
}

// tables runs the packet through the switch's tables.
func (x *switchRun) tables(rules []rule.Installed) {
	for table := uint8(0); ; {
		best, passed := match(rules, table, x.p)
		x.lookups = append(x.lookups, Lookup{Table: table, Passed: passed})
		l := &x.lookups[len(x.lookups)-1]
		if best == nil {
			x.end = fmt.Sprintf("dropped: no rule in table %d matches", table)
			return
		}
		info := describe(best)
		l.Rule = &info
		if best.Meter != 0 {
			l.Did = append(l.Did, fmt.Sprintf("meter %d, which may drop", best.Meter))
		}
		x.actions(best.Actions, "", l, 0)
		if best.Next <= table {
			if len(best.Actions) == 0 {
				x.end = "dropped by this rule"
			}
			return
		}
		table = best.Next
	}
}

// match returns the rule of a table that handles the packet, and the nearest rules of higher
// priority that do not match. If several rules of one priority match, a switch may use any;
// match returns the first.
func match(rules []rule.Installed, table uint8, p Packet) (*rule.Installed, []Passed) {
	var best *rule.Installed
	for i := range rules {
		r := &rules[i]
		if r.Number != table || best != nil && r.Priority() <= best.Priority() {
			continue
		}
		if _, _, differs := p.mismatch(r.Match); !differs {
			best = r
		}
	}
	return best, nearMisses(rules, table, p, best)
}

// nearMisses returns the rules that a reader could expect to match: those of higher priority
// that agree with the packet in most fields, the nearest first.
func nearMisses(rules []rule.Installed, table uint8, p Packet, best *rule.Installed) []Passed {
	type near struct {
		Passed
		agreed int
	}
	var all []near
	for i := range rules {
		r := &rules[i]
		if r.Number != table || best != nil && r.Priority() <= best.Priority() {
			continue
		}
		want, have, _ := p.mismatch(r.Match)
		agreed, fields := 0, 0
		for o := range r.Match.Fields() {
			fields++
			if _, _, d := p.fieldMismatch(o); !d {
				agreed++
			}
		}
		if 2*agreed <= fields {
			continue
		}
		if have == "" {
			have = "no such field"
		}
		all = append(all, near{Passed{RuleInfo: describe(r), Want: fmt.Sprint(want), Have: have}, agreed})
	}
	slices.SortStableFunc(all, func(a, b near) int {
		return cmp.Or(b.agreed-a.agreed, int(b.Priority)-int(a.Priority))
	})
	var out []Passed
	for _, n := range all[:min(len(all), maxPassed)] {
		out = append(out, n.Passed)
	}
	return out
}

func describe(r *rule.Installed) RuleInfo {
	actions := "drop"
	if len(r.Actions) > 0 {
		actions = joinActions(r.Actions)
	}
	if r.Next != 0 {
		if len(r.Actions) == 0 {
			actions = ""
		} else {
			actions += ","
		}
		actions += fmt.Sprintf("goto_table:%d", r.Next)
	}
	return RuleInfo{
		Owner: r.Owner, Name: r.Name, Cookie: r.Cookie.String(), Stage: r.Stage.String(), Priority: r.Priority(),
		Match: r.Match.String(), Actions: actions,
	}
}

func joinActions(as []openflow.Action) string {
	s := ""
	for i, a := range as {
		if i > 0 {
			s += ","
		}
		s += fmt.Sprint(a)
	}
	return s
}
