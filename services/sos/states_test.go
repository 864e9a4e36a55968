package sos

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTransitions makes every transition of the table, and checks that all others are refused.
func TestTransitions(t *testing.T) {
	defer func(before func(error)) { reportInvalidTransition = before }(reportInvalidTransition)
	states := []State{"", StateSetup, StateLive, StateResetting, StateEnding, StateEnded}
	for _, from := range states {
		for _, to := range states {
			var err error
			reportInvalidTransition = func(e error) { err = e }
			ss := &session{state: from}
			ss.enter(to)
			may := slices.ContainsFunc(transitions, func(x transition) bool { return x.from == from && x.to == to })
			if may != (err == nil) || may && ss.state != to || !may && ss.state != from {
				t.Errorf("from %q to %q: %v, now %q", from, to, err, ss.state)
			}
		}
	}
}

// TestEveryStateEnds checks that a session can reach every state, and end from each.
func TestEveryStateEnds(t *testing.T) {
	next := func(from State) (out []State) {
		for _, x := range transitions {
			if x.from == from {
				out = append(out, x.to)
			}
		}
		return out
	}
	reached := map[State]bool{}
	for todo := next(""); len(todo) > 0; todo = todo[1:] {
		if s := todo[0]; !reached[s] {
			reached[s] = true
			todo = append(todo, next(s)...)
		}
	}
	for _, s := range []State{StateSetup, StateLive, StateResetting, StateEnding, StateEnded} {
		if !reached[s] || s != StateEnded && len(next(s)) == 0 {
			t.Errorf("%s: reached %v, leads to %v", s, reached[s], next(s))
		}
	}
	if after := next(StateEnded); len(after) > 0 {
		t.Errorf("what has ended becomes %v", after)
	}
}

// TestPageHasTransitions checks that the page about SOS contains the table.
func TestPageHasTransitions(t *testing.T) {
	var want strings.Builder
	for _, x := range transitions {
		from := "`" + string(x.from) + "`"
		if x.from == "" {
			from = "-"
		}
		fmt.Fprintf(&want, "| %s | `%s` | %s |\n", from, x.to, x.when)
	}
	page, err := os.ReadFile("../../docs/topics/sos.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), want.String()) {
		t.Errorf("docs/topics/sos.md lacks the table of states:\n%s", want.String())
	}
}
