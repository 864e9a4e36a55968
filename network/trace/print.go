package trace

import (
	"fmt"
	"strings"
)

// String formats the trace for a person: one paragraph for each switch.
func (t Trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "packet %s\n", t.Packet)
	for i, s := range t.Steps {
		fmt.Fprintf(&b, "\n%d. switch %v, in by port %d", i+1, s.Switch, s.InPort)
		if s.Parent >= 0 {
			fmt.Fprintf(&b, " (from %d)", s.Parent+1)
		}
		b.WriteByte('\n')
		if i > 0 && s.Packet != t.Steps[s.Parent].Packet {
			fmt.Fprintf(&b, "   packet  %s\n", s.Packet)
		}
		for _, l := range s.Tables {
			l.print(&b)
		}
		for _, o := range s.Outputs {
			o.print(&b)
		}
		if s.End != "" {
			fmt.Fprintf(&b, "   end     %s\n", s.End)
		}
	}
	return b.String()
}

func (l *Lookup) print(b *strings.Builder) {
	if l.Rule == nil {
		fmt.Fprintf(b, "   table %d no rule matches\n", l.Table)
	} else {
		r := l.Rule
		fmt.Fprintf(b, "   table %d %s, rule %q, stage %s, priority %d, cookie %s\n", l.Table, owner(r), r.Name, r.Stage, r.Priority, r.Cookie)
		fmt.Fprintf(b, "           match %s, actions %s\n", orAny(r.Match), r.Actions)
	}
	for _, p := range l.Passed {
		fmt.Fprintf(b, "           not %s, rule %q (priority %d): it wants %s, the packet has %s\n", owner(&p.RuleInfo), p.Name, p.Priority, p.Want, p.Have)
	}
	for _, d := range l.Did {
		fmt.Fprintf(b, "   did     %s\n", d)
	}
}

func (o *Output) print(b *strings.Builder) {
	fmt.Fprintf(b, "   out     port %s", o.Port)
	if o.Via != "" {
		fmt.Fprintf(b, ", %s", o.Via)
	}
	if o.To != "" {
		fmt.Fprintf(b, ": %s", o.To)
	}
	if o.Next >= 0 {
		fmt.Fprintf(b, ", on to %d", o.Next+1)
	}
	b.WriteByte('\n')
}

func owner(r *RuleInfo) string {
	if r.Owner == "" {
		return "owner unknown"
	}
	return "owner " + r.Owner
}

func orAny(match string) string {
	if match == "" {
		return "any"
	}
	return match
}
