package handover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// table formats the transitions as the documentation prints them.
func table() string {
	var b strings.Builder
	b.WriteString("| state |")
	for i := range stepNames {
		fmt.Fprintf(&b, " %v |", step(i))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(stepNames)) + "\n")
	for i := range stateNames {
		fmt.Fprintf(&b, "| *%v* |", state(i))
		for j := range stepNames {
			next, ok := transitions[state(i)][step(j)]
			switch {
			case !ok:
				b.WriteString(" |")
			case next == state(i):
				b.WriteString(" = |")
			default:
				fmt.Fprintf(&b, " %v |", next)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// The documentation contains the current table.
func TestTransitionsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/topics/handover.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), table()) {
		t.Errorf("docs/topics/handover.md does not have\n%s", table())
	}
}

// Each state is reached and left. Only the states with a second place have one, and it ends with
// them.
func TestTransitions(t *testing.T) {
	seen := map[state]bool{}
	m := &mobile{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		before, s := m.state, step(random.IntN(len(stepNames)))
		switch s {
		case stepPrepare, stepBicast, stepMove:
			if before == detached || before == expected {
				continue // without rules there is nothing to branch from
			}
			m.advanceWith(s, &second{})
		default:
			m.advance(s)
		}
		seen[m.state] = true
		if next, ok := transitions[before][s]; ok && m.state != next || !ok && m.state != before {
			t.Fatalf("%v: %v leads to %v", before, s, m.state)
		}
		if (m.second != nil) != (m.state >= prepared) {
			t.Fatalf("%v: %v leads to %v with a second place %v", before, s, m.state, m.second)
		}
	}
	for i := range stateNames {
		if !seen[state(i)] {
			t.Errorf("%v is never reached", state(i))
		}
		if transitions[state(i)][stepRemove] != detached {
			t.Errorf("%v does not end", state(i))
		}
	}
}

// A device goes through the states as it is served.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		is := func(what, id string, want state) {
			t.Helper()
			r.eventually(fmt.Sprintf("%s to be %v %s", id, want, what), func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				m := r.placement.mobiles[id]
				return m == nil && want == detached || m != nil && m.state == want
			})
		}
		is("at first", "car", detached)
		ip := r.attach(edge3, mac1)
		is("where it came", "car", served)
		if err := r.placement.prepareAt(t.Context(), "car", edge4, mac1, "test", time.Minute); err != nil {
			t.Fatal(err)
		}
		is("with a place prepared", "car", prepared)
		r.move(edge4, mac1, ip)
		is("after its move", "car", served)

		ip = r.attach(edge3, mac3)
		if err := r.placement.prepareAt(t.Context(), "phone", edge4, mac3, "test", time.Minute); err != nil {
			t.Fatal(err)
		}
		is("with a place prepared", "phone", bicasting)
		r.move(edge4, mac3, ip)
		is("after its move", "phone", leaving)
		is("when its old place is over", "phone", served)
		r.idle()
		err := r.queue.Do(t.Context(), "phone", func(ctx context.Context) error { return r.placement.detach(ctx, "phone", ip, nil, "test") })
		if err != nil {
			t.Fatal(err)
		}
		is("in the end", "phone", detached)
	})
}
