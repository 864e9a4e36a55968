package soak

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// program is a kind of process that is killed.
type program string

const (
	controller program = "controller"
	agent      program = "agent"
	device     program = "device" // the mobile device's daemon
	vswitchd   program = "vswitchd"
	classifier program = "classifier"
)

// programs are all kinds.
var programs = []program{controller, agent, device, vswitchd, classifier}

// Kinds are the kinds of programs that a soak can kill.
func Kinds() (names []string) {
	for _, p := range programs {
		names = append(names, string(p))
	}
	return names
}

// incident is a kill, from the signal until what was killed is usable again.
type incident struct {
	program program
	name    string
	part    part
	from    time.Time
	until   time.Time // zero while it lasts
}

// aftermath is how long after its end an incident still explains a failure: what
// was disturbed by it takes a moment to be seen.
const aftermath = 3 * time.Second

// failure is something that went wrong for an application.
type failure struct {
	load  string
	part  part
	kind  testbed.Failure
	began time.Time // of the connection or request
	at    time.Time
	err   error
}

// explains says whether the incident is a reason for the failure. Only what
// nothing could have prevented is one:
//
//   - An agent's sessions end with it, and those that it was about to carry.
//   - A switch's rules are gone with its daemon until the controller has written
//     them again: connections that cross it may be reset or hang.
//   - Without a controller no device is moved, and what needs it to begin, waits.
//     What goes on, goes on: no reset.
//   - Without its daemon a device is not moved. Its packets go on.
//   - Without a classifier marks have no effect. Nothing is lost.
//
// Wrong bytes are never explained.
func (i incident) explains(f failure) bool {
	if f.kind == testbed.WrongBytes || f.at.Before(i.from) || !i.until.IsZero() && f.began.After(i.until.Add(aftermath)) {
		return false
	}
	switch i.program {
	case agent, vswitchd:
		// It lies within the life of what failed, or just before it; and it was not
		// over long before the failure showed, unless as a hung connection.
		return f.part == i.part && (f.kind == testbed.TimedOut || i.until.IsZero() || f.at.Before(i.until.Add(aftermath)))
	case controller:
		return (f.kind == testbed.TimedOut || f.kind == moveFailed) && (i.until.IsZero() || f.began.Before(i.until))
	case device:
		return f.kind == moveFailed
	}
	return false
}

// moveFailed is a move that did not happen, or a request to the controller that
// was not carried out.
const moveFailed testbed.Failure = "not carried out"

// unexplained returns the failures that no incident explains.
func unexplained(failures []failure, incidents []incident) []failure {
	var out []failure
	for _, f := range failures {
		if !slices.ContainsFunc(incidents, func(i incident) bool { return i.explains(f) }) {
			out = append(out, f)
		}
	}
	return out
}
