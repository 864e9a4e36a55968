package domain

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// However messages are repeated, delayed and mixed, none is accepted twice, and those about one
// device are accepted in the order in which they were sent.
func TestGuardProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(1_800_000_000, 0)
		g, now := newReplayGuard(10*time.Second, start), start
		var sent []Envelope
		var about []string
		counted := map[string]bool{}
		last := map[string]uint64{}
		var numbers counter
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pause")))
			var e Envelope
			device := fmt.Sprint("d", rapid.IntRange(0, 2).Draw(t, "device"))
			if i := rapid.IntRange(-1, len(sent)-1).Draw(t, "which"); i >= 0 {
				e, device = sent[i], about[i]
			} else {
				skew := time.Duration(rapid.Int64Range(int64(-12*time.Second), int64(12*time.Second)).Draw(t, "skew"))
				e = Envelope{Time: now.Add(skew), Nonce: newToken(), Sequence: numbers.next(now)}
				sent, about = append(sent, e), append(about, device)
			}
			if g.accept(&e, device, now) != nil {
				continue
			}
			if counted[e.Nonce] {
				t.Fatalf("counted twice: %+v", e)
			}
			if e.Sequence <= last[device] {
				t.Fatalf("out of order: %d after %d", e.Sequence, last[device])
			}
			if age := now.Sub(e.Time); age.Abs() > 10*time.Second || e.Time.Before(start) {
				t.Fatalf("%v old", age)
			}
			counted[e.Nonce], last[device] = true, e.Sequence
		}
	})
}

func TestGuardIsBounded(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	g := newReplayGuard(10*time.Second, start)
	refused := 0
	for i := range maxNonces + 100 {
		e := Envelope{Time: start, Nonce: fmt.Sprintf("%032x", i)}
		if r := g.accept(&e, "", start); r != nil {
			if r.Code != CodeBusy {
				t.Fatal(r)
			}
			refused++
		}
	}
	if refused != 100 || len(g.nonces) != maxNonces {
		t.Errorf("%d refused, %d remembered", refused, len(g.nonces))
	}
	later := start.Add(time.Minute)
	e := Envelope{Time: later, Nonce: newToken()}
	if r := g.accept(&e, "", later); r != nil || len(g.nonces) != 1 {
		t.Errorf("after a minute: %v, %d remembered", r, len(g.nonces))
	}
}

func TestCounterGrowsThoughTheClockDoesNot(t *testing.T) {
	t.Parallel()
	var c counter
	now := time.Unix(100, 0)
	last := c.next(now)
	for range 5 {
		now = now.Add(-time.Second)
		next := c.next(now)
		if next <= last {
			t.Fatalf("%d after %d", next, last)
		}
		last = next
	}
}
