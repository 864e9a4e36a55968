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

// programs lists all kinds.
var programs = []program{controller, agent, device, vswitchd, classifier}

// Kinds returns the kinds of programs that a soak can kill.
func Kinds() (names []string) {
	for _, p := range programs {
		names = append(names, string(p))
	}
	return names
}

// incident is a kill. It lasts from the signal until the program is usable again.
type incident struct {
	program program
	name    string
	part    part
	from    time.Time
	until   time.Time // zero while it lasts
}

// aftermath is how long an incident explains failures after its end, because its effects take a
// moment to show.
const aftermath = 3 * time.Second

// failure is an error that an application has seen.
type failure struct {
	load  string
	part  part
	kind  testbed.Failure
	began time.Time // when the connection or request began
	at    time.Time
	err   error
}

// explains reports whether the incident is a reason for the failure. An incident is a reason only
// where the failure could not have been prevented:
//
//   - An agent's sessions end with it, and so do those that it was about to carry.
//   - A switch's rules are lost with its daemon until the controller has written
//     them again: connections that cross the switch may be reset or hang.
//   - Without a controller no device is moved, and whatever needs the controller to
//     begin has to wait. What has begun continues without a reset.
//   - Without its daemon a device is not moved. Its packets continue.
//   - Without a classifier marks have no effect. Nothing is lost.
//
// Wrong bytes are never explained.
func (i incident) explains(f failure) bool {
	if f.kind == testbed.WrongBytes || f.at.Before(i.from) || !i.until.IsZero() && f.began.After(i.until.Add(aftermath)) {
		return false
	}
	switch i.program {
	case agent, vswitchd:
		// The incident must overlap the life of what failed, or end shortly before it began. It
		// must not have ended long before the failure showed, except for a connection that hangs.
		return f.part == i.part && (f.kind == testbed.TimedOut || i.until.IsZero() || f.at.Before(i.until.Add(aftermath)))
	case controller:
		return (f.kind == testbed.TimedOut || f.kind == moveFailed) && (i.until.IsZero() || f.began.Before(i.until))
	case device:
		return f.kind == moveFailed
	}
	return false
}

// moveFailed means that a move did not happen, or that the controller did not carry out a request.
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
