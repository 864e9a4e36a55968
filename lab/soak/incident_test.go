package soak

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

func TestWhatKillsExplain(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }
	// Each incident lasts from second 10 to second 12.
	for _, c := range []struct {
		name      string
		program   program
		part      part
		fails     part
		kind      testbed.Failure
		began, at float64
		want      bool
	}{
		{"agent's session", agent, partSOS, partSOS, testbed.ResetOnRead, 1, 10.1, true},
		{"session begun with the agent away", agent, partSOS, partSOS, testbed.ResetOnRead, 11, 11.5, true},
		{"session reset before", agent, partSOS, partSOS, testbed.ResetOnRead, 1, 9.9, false},
		{"session reset long after", agent, partSOS, partSOS, testbed.ResetOnRead, 1, 16, false},
		{"session begun long after", agent, partSOS, partSOS, testbed.ResetOnRead, 15.5, 16, false},
		{"connection that hung since", agent, partSOS, partSOS, testbed.TimedOut, 11, 31, true},
		{"connection of others", agent, partSOS, partQoS, testbed.ResetOnRead, 1, 10.1, false},
		{"wrong bytes", agent, partSOS, partSOS, testbed.WrongBytes, 1, 10.1, false},
		{"connection across a switch", vswitchd, partQoS, partQoS, testbed.ResetOnRead, 1, 12.5, true},
		{"connection across another", vswitchd, partSOS, partQoS, testbed.ResetOnRead, 1, 12.5, false},
		{"connection without controller", controller, partAll, partSOS, testbed.ResetOnRead, 1, 11, false},
		{"connection begun without controller", controller, partAll, partSOS, testbed.TimedOut, 11, 31, true},
		{"move without controller", controller, partAll, partHandover, moveFailed, 11, 13, true},
		{"move after", controller, partAll, partHandover, moveFailed, 12.5, 13, false},
		{"move without daemon", device, partHandover, partHandover, moveFailed, 9, 11, true},
		{"connection of the device", device, partHandover, partHandover, testbed.ResetOnRead, 1, 11, false},
		{"anything without classifier", classifier, partQoS, partQoS, testbed.ResetOnRead, 1, 11, false},
	} {
		i := incident{program: c.program, part: c.part, from: at(10), until: at(12)}
		f := failure{part: c.fails, kind: c.kind, began: at(c.began), at: at(c.at)}
		if got := i.explains(f); got != c.want {
			t.Errorf("%s: explained %v, want %v", c.name, got, c.want)
		}
		if left := len(unexplained([]failure{f}, []incident{i})); left == 1 == c.want {
			t.Errorf("%s: %d unexplained", c.name, left)
		}
	}
	lasting := incident{program: agent, part: partSOS, from: at(10)}
	if !lasting.explains(failure{part: partSOS, kind: testbed.ResetOnRead, began: at(1), at: at(60)}) {
		t.Error("an agent that is still away explains nothing")
	}
}
