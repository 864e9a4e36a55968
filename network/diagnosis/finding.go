package diagnosis

import (
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// Level is the severity of a finding.
type Level string

// The levels.
const (
	Fail Level = "fail" // packets are lost or changed
	Warn Level = "warn" // something that some networks need does not work, or is unknown
)

// Fault is the name of a fault, for programs.
type Fault string

// The faults of an examination.
const (
	Unexamined  Fault = "unexamined"   // something could not be examined
	Gone        Fault = "gone"         // a former link is missing
	RuleRefused Fault = "rule-refused" // a switch refuses the rule for probes
)

// Finding is one fault: what, where, and what to do about it.
type Finding struct {
	Fault Fault
	Level Level
	// From is the place of the fault: a port, or a switch if the port is 0. If To is set, the fault
	// is in the direction of a link that leads from From to To.
	From, To topology.PortRef
	// Found describes the fault, and Remedy says what to do.
	Found, Remedy string
}

// Report is the result of an examination of the network.
type Report struct {
	// Number counts the examinations since the controller's start.
	Number int
	// MTU is the MTU that links were expected to have, in bytes of an IP packet.
	MTU          int
	Began, Ended time.Time // Ended is zero while it runs
	// Links is the number of examined links, Frames the number of frames that were sent over them,
	// and MostFrames the largest number of frames that were sent over one link.
	Links, Frames, MostFrames int
	Findings                  []Finding
}
