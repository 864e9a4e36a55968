package agents

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/kit/control"
)

const (
	// driftWithin is how long an agent that has restored something several times is a problem.
	driftWithin = time.Hour
	// driftEvents and driftInterval bound the events about what one agent has restored.
	driftEvents   = 5
	driftInterval = time.Minute
)

// driftState is what the controller has seen of an agent's counts of what it has restored.
type driftState struct {
	total uint64
	// increases is the number of times that total has increased while the controller watched. It
	// starts again from zero when total has not increased for driftWithin. last is the time of the
	// latest increase.
	increases int
	last      time.Time
	events    *rate.Limiter
}

// update records counts that have arrived, and reports whether an event has to tell of them. first
// reports whether they are the first of this process of the agent. Such counts may be old.
func (d *driftState) update(counts []drift.Count, first bool, now time.Time) (tell bool) {
	total := drift.Total(counts)
	increased := total > d.total && !first
	d.total = total
	if !increased {
		return false
	}
	if now.Sub(d.last) >= driftWithin {
		d.increases = 0
	}
	d.increases++
	d.last = now
	if d.events == nil {
		d.events = rate.NewLimiter(rate.Every(driftInterval), driftEvents)
	}
	return d.events.AllowN(now, 1)
}

// updateDrift updates an agent's counts from an event. It returns the data of an event about them,
// or nil. first reports whether the event is the first of this process of the agent. The lock is
// held.
func (a *Agent[C]) updateDrift(counts []drift.Count, first bool, now time.Time) map[string]any {
	if first || counts != nil {
		a.state.Status.Drift = counts
	}
	if !a.drift.update(a.state.Status.Drift, first, now) {
		return nil
	}
	return map[string]any{"agent": a.Name, "drift": a.drift.total, "deviations": counts}
}

// problem returns what other programs keep changing on an agent's machine, or what the agent
// cannot restore there, and a remedy. Both are empty if there is nothing of the kind.
func (d *driftState) problem(st *control.Status, now time.Time) (found, remedy string) {
	var failed, restored []string
	for _, c := range st.Drift {
		switch {
		case c.Error != "":
			failed = append(failed, fmt.Sprintf("%q (%s)", c.Thing, c.Error))
		case c.Times > 0:
			restored = append(restored, fmt.Sprintf("%q (%d times)", c.Thing, c.Times))
		}
	}
	switch {
	case len(failed) > 0:
		return "cannot keep on its machine what it needs: " + strings.Join(failed, ", "), "see its log, and which program there changes it"
	case d.increases > 1 && now.Sub(d.last) < driftWithin && len(restored) > 0:
		return "restores again and again what another program on its machine changes: " + strings.Join(restored, ", "), "find that program, and have it leave these alone"
	}
	return "", ""
}
