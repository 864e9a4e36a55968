package network

import (
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// EventKind is the kind of an event.
type EventKind uint8

// The kinds of events.
const (
	// SwitchUp means that the switch is reconciled and takes part in the network.
	SwitchUp EventKind = iota + 1
	// SwitchDown means that the session with the switch has ended.
	SwitchDown
	// PortUp means that a port appeared or its link came up. PortDown means that a port disappeared
	// or its link went down.
	PortUp
	PortDown
	// LinkUp and LinkDown mean that one direction of a link between switches was found or lost.
	LinkUp
	LinkDown
	// HostAdded, HostMoved and HostRemoved are changes of the host table.
	HostAdded
	HostMoved
	HostRemoved
	// HostChanged means that a host's addresses have changed.
	HostChanged
	// SwitchRefused means that a switch was not let in. The event's Reason says why.
	SwitchRefused
	// HostRefused means that a claim about a host, which is what a packet says about the host's place
	// or address, was refused at a port. The event's Reason says why, and its Host is the known host,
	// if there is one.
	HostRefused
	// LinkMisplaced means that a link ends at a Port whose role is access.
	LinkMisplaced
	// SwitchDrifted means that rules, groups or meters of a switch were not as declared. They were
	// repaired, unless the event has a Reason why that failed.
	SwitchDrifted
	// EventsLeftOut means that some events were not published because there were too many. They are
	// events about the hosts and the state of Port. If Port has number 0, they are about refused
	// claims at its switch, or repairs of the switch.
	EventsLeftOut
	// LoopFound means that Port was blocked because a foreign bridge, which the controller does not
	// control, connects it with the port From. LoopGone means that the loop is gone and Port is used
	// again.
	LoopFound
	LoopGone
)

var eventNames = [...]string{
	SwitchUp: "switch.up", SwitchDown: "switch.down", PortUp: "port.up", PortDown: "port.down", LinkUp: "link.up", LinkDown: "link.down",
	HostAdded: "host.added", HostMoved: "host.moved", HostRemoved: "host.removed", HostChanged: "host.changed", SwitchRefused: "switch.refused", HostRefused: "host.refused",
	LinkMisplaced: "link.misplaced", SwitchDrifted: "switch.drifted", EventsLeftOut: "events.left-out", LoopFound: "loop.found", LoopGone: "loop.gone",
}

// String returns the event's name in logs and in the event stream.
func (k EventKind) String() string {
	if int(k) < len(eventNames) && k > 0 {
		return eventNames[k]
	}
	return "unknown"
}

// Event is a change of the network. Only the fields of its kind are set.
type Event struct {
	Kind   EventKind
	At     time.Time
	Switch openflow.DatapathID
	// Port is set for port events.
	Port PortRef
	// Link is set for link events.
	Link Link
	// Host is set for host events, and From is the previous place of a host that has moved, or the
	// other end of a loop.
	Host Host
	From PortRef
	// Drift is set for SwitchDrifted, and holds the differences from what is declared. The next
	// repair of the same switch waits for Pause.
	Drift []Deviation
	Pause time.Duration
	// Reason is set if something was refused, or a repair has failed.
	Reason string
	// LeftOut is the number of events of the same port (or switch, for refused claims and repairs)
	// that were not published before this one.
	LeftOut int `json:",omitempty"`
}
