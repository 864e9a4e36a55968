package diagnosis

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// Level is how much a finding matters.
type Level string

// The levels.
const (
	Fail Level = "fail" // packets are lost or changed
	Warn Level = "warn" // what some networks need does not work, or is not known
)

// Fault is a name for what is wrong, for programs.
type Fault string

// The faults of an examination.
const (
	Unexamined  Fault = "unexamined"   // something could not be looked at
	Gone        Fault = "gone"         // a link that was there is not
	RuleRefused Fault = "rule-refused" // a switch refuses the rule for probes
)

// Finding is one fault: what, where, and what to do about it.
type Finding struct {
	Fault Fault
	Level Level
	// From is where: a port, or with port 0 a switch. With To it is a direction of a link.
	From, To topology.PortRef
	// Found says what, Remedy what to do.
	Found, Remedy string
}

// Report is what an examination of the network has found.
type Report struct {
	// Number counts the examinations since the controller began.
	Number int
	// MTU is what the ends of links were taken to say, in bytes of an IP packet.
	MTU          int
	Began, Ended time.Time // Ended is zero while it runs
	// Links is how many links have been examined, Frames how many frames that took, and
	// MostFrames how many it took for one link at most.
	Links, Frames, MostFrames int
	Findings                  []Finding
}
