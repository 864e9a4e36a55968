package agents

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/kit/control"
)

// TestDriftState checks when counts of an agent are told, and when they are a problem.
func TestDriftState(t *testing.T) {
	count := func(times uint64, failure string) []drift.Count {
		return []drift.Count{{Thing: "rule", Times: times, Error: failure}}
	}
	type step struct {
		after  time.Duration
		counts []drift.Count
		first  bool
		tell   bool
		says   string // "" for no problem
	}
	for name, steps := range map[string][]step{
		"nothing":                    {{0, nil, true, false, ""}, {time.Second, nil, false, false, ""}},
		"once":                       {{0, nil, true, false, ""}, {time.Second, count(1, ""), false, true, ""}, {time.Second, count(1, ""), false, false, ""}},
		"from before the watch":      {{0, count(9, ""), true, false, ""}, {time.Second, count(9, ""), false, false, ""}},
		"again and again":            {{0, nil, true, false, ""}, {time.Second, count(1, ""), false, true, ""}, {time.Minute, count(3, ""), false, true, `"rule" (3 times)`}, {time.Hour, count(3, ""), false, false, ""}},
		"twice in a day":             {{0, nil, true, false, ""}, {time.Second, count(1, ""), false, true, ""}, {12 * time.Hour, count(2, ""), false, true, ""}},
		"not restored":               {{0, nil, true, false, ""}, {time.Second, count(1, "refused"), false, true, `"rule" (refused)`}, {time.Second, count(1, ""), false, false, ""}},
		"not to be compared":         {{0, count(0, "unreadable"), true, false, `"rule" (unreadable)`}},
		"the agent was started anew": {{0, nil, true, false, ""}, {time.Second, count(5, ""), false, true, ""}, {time.Second, count(2, ""), true, false, ""}, {time.Second, count(3, ""), false, true, `"rule" (3 times)`}},
	} {
		t.Run(name, func(t *testing.T) {
			var d driftState
			now := time.Unix(1e9, 0)
			for i, s := range steps {
				now = now.Add(s.after)
				if tell := d.update(s.counts, s.first, now); tell != s.tell {
					t.Errorf("step %d is told: %v", i, tell)
				}
				if got, _ := d.problem(&control.Status{Drift: s.counts}, now); (got == "") != (s.says == "") || !strings.Contains(got, s.says) {
					t.Errorf("step %d: the problem is %q, want %q", i, got, s.says)
				}
			}
		})
	}
	var d driftState
	told, now := 0, time.Unix(1e9, 0)
	for n := range uint64(3600) {
		now = now.Add(time.Second)
		if d.update(count(n, ""), n == 0, now) {
			told++
		}
	}
	if told > driftEvents+60 {
		t.Errorf("a count that increases each second is told %d times in an hour", told)
	}
}

// TestDriftOfAgents checks that what an agent counts reaches the API, the problems and the
// examinations of the network.
func TestDriftOfAgents(t *testing.T) {
	w := newWorld(t)
	_, url := w.serve()
	w.add("a", url, "10.0.0.1")
	w.eventually("it can be used", func() bool { return w.unfit("a") == "" })
	for times := range uint64(3) {
		w.mu.Lock()
		w.drift = []drift.Count{{Thing: "rule from 10.0.0.1", Times: times, Last: time.Unix(1e9, 0)}}
		w.mu.Unlock()
		w.eventually("the count", func() bool { return w.Infos()[0].Drift == times })
	}
	if d := w.Infos()[0].Deviations; len(d) != 1 || d[0].Thing != "rule from 10.0.0.1" {
		t.Errorf("deviations: %+v", d)
	}
	if lines := w.Problems(); len(lines) != 1 || !strings.HasPrefix(lines[0], `agent a restores again and again what another program on its machine changes: "rule from 10.0.0.1" (2 times)`) {
		t.Errorf("problems: %q", lines)
	}
	if n := w.Needed("test"); len(n) != 1 || !strings.HasPrefix(n[0].Drift, "restores again and again") || n[0].DriftRemedy == "" {
		t.Errorf("examinations get %+v", n)
	}
}
