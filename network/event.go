package network

import (
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	// SwitchUp: the switch has been reconciled and takes part in the network.
	SwitchUp EventKind = iota + 1
	// SwitchDown: the session with the switch ended.
	SwitchDown
	// PortUp and PortDown: a port appeared or its link came up; and the reverse.
	PortUp
	PortDown
	// LinkUp and LinkDown: one direction of a link between switches.
	LinkUp
	LinkDown
	// HostAdded, HostMoved, HostRemoved: the host table changed.
	HostAdded
	HostMoved
	HostRemoved
	// HostChanged: a host's addresses changed.
	HostChanged
	// SwitchRefused: a switch was not let in, for its Reason.
	SwitchRefused
	// HostRefused: what was said of a host behind a port is not believed, for its Reason.
	// Host is the one that is known, if it is.
	HostRefused
	// LinkMisplaced: a link ends at a Port whose role is access.
	LinkMisplaced
	// EventsLeftOut: some events about hosts and the state of a Port, or about what is not
	// believed of hosts at a Switch (its port 0), were not published, because there were too
	// many.
	EventsLeftOut
)

var eventNames = [...]string{
	SwitchUp: "switch.up", SwitchDown: "switch.down", PortUp: "port.up", PortDown: "port.down", LinkUp: "link.up", LinkDown: "link.down",
	HostAdded: "host.added", HostMoved: "host.moved", HostRemoved: "host.removed", HostChanged: "host.changed", SwitchRefused: "switch.refused", HostRefused: "host.refused",
	LinkMisplaced: "link.misplaced", EventsLeftOut: "events.left-out",
}

// String is the event's name in logs and in the event stream.
func (k EventKind) String() string {
	if int(k) < len(eventNames) && k > 0 {
		return eventNames[k]
	}
	return "unknown"
}

// Event is a change of the network. Only the fields that belong to its kind are set.
type Event struct {
	Kind   EventKind
	At     time.Time
	Switch openflow.DatapathID
	// Port is set for port events.
	Port PortRef
	// Link is set for link events.
	Link Link
	// Host is set for host events, and From is where a moved host stood before.
	Host Host
	From PortRef
	// Reason is set where something was refused.
	Reason string
	// LeftOut is how many events of the same port were not published before this one.
	LeftOut int `json:",omitempty"`
}
