package classes

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// shadowed is a ledger in which other owners' rules come first.
type shadowed struct {
	*servicetest.Ledger
	by []rule.Shadowing
}

func (o *shadowed) Shadowed(_ network.Stage, _ uint16, of [][]openflow.Match) [][]rule.Shadowing {
	out := make([][]rule.Shadowing, len(of))
	for i := range of {
		out[i] = append(out[i], o.by...)
	}
	return out
}

// A note promises the queue to packets that another service takes only as far as rules give it
// to them: not under headers that the class does not name, and not where there are no marks.
func TestNoteAboutAnotherService(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.addTCP("web", nil)
	for _, c := range []struct {
		name    string
		by      rule.Shadowing
		has     []string
		without []string
	}{
		{"it leads packets", rule.Shadowing{Tables: true}, []string{"in the queue at the ports where the class has one"}, []string{"rewrites", "without the queue"}},
		{"it leads packets, also on switches with one table", rule.Shadowing{Tables: true, OneTable: true}, []string{"in the queue at the ports", "on switches with one table without the queue"}, nil},
		{"it leads packets on switches with one table", rule.Shadowing{OneTable: true}, []string{"go without the queue"}, []string{"in the queue"}},
		{"it rewrites packets", rule.Shadowing{Tables: true, Rewrites: true}, []string{"rewrites their headers", "only where they come to a switch of the class's path with the headers that its flows name"}, []string{"in the queue at the ports where"}},
		{"it rewrites packets on switches with one table", rule.Shadowing{OneTable: true, Rewrites: true}, []string{"go without the queue"}, []string{"rewrites"}},
	} {
		c.by.Owner, c.by.Name, c.by.Names = "other", "rules", 1
		x.Rules = &shadowed{x.rules, []rule.Shadowing{c.by}}
		info, _ := x.Class("web")
		note := info.Notes[len(info.Notes)-1]
		for _, want := range c.has {
			if !strings.Contains(note, want) {
				t.Errorf("%s: the note is %q, want %q in it", c.name, note, want)
			}
		}
		for _, wrong := range c.without {
			if strings.Contains(note, wrong) {
				t.Errorf("%s: the note is %q, with %q in it", c.name, note, wrong)
			}
		}
	}
}
