package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// The faults of switches and their ports.
const (
	Absent   Fault = "absent"    // a switch of the configuration is not connected
	Slave    Fault = "slave"     // another controller is master of a switch
	NoPort   Fault = "no-port"   // a switch does not have a port of the configuration
	PortDown Fault = "port-down" // a port of the configuration is down
	Drifting Fault = "drifting"  // something keeps changing what is declared for a switch or an agent's machine
)

// Switch holds what the examination needs to know about a connected switch.
type Switch struct {
	ID openflow.DatapathID
	// Address is the address from which it connects.
	Address string
	Role    openflow.Role
	// Ports holds its ports, and whether each is up.
	Ports map[uint32]bool
	// Drift is what comparisons of the switch with what is declared for it have found.
	Drift Drift
}

// Drift is what comparisons of a switch with what is declared for it have found.
type Drift struct {
	// Times counts the comparisons that have found a difference, and Last is when the latest did.
	Times uint64
	Last  time.Time
	// Differences counts the rules, groups and meters that were not as declared, by owner and kind,
	// such as "sos: rule".
	Differences map[string]int
}

const (
	// driftTimes is the number of comparisons with a difference from which a switch counts as
	// drifting, if the latest of them is not older than driftWithin.
	driftTimes  = 2
	driftWithin = time.Hour
)

// Switches returns the faults of connected switches at a time, and those of the configuration's
// switches and ports: a configured PortRef with port 0 is a switch.
func Switches(configured []topology.PortRef, connected []Switch, now time.Time) (out []Finding) {
	known, configuredSwitches := map[openflow.DatapathID]Switch{}, map[openflow.DatapathID]bool{}
	for _, s := range connected {
		known[s.ID] = s
		if s.Role == openflow.RoleSlave {
			out = append(out, Finding{
				Fault: Slave, Level: Fail, From: topology.PortRef{Switch: s.ID}, Found: "another controller is the switch's master: it takes no rules from this one",
				Remedy: "have the switch connect to this controller only, or give it the role master (openflow.role)",
			})
		}
	}
	for _, s := range connected {
		out = append(out, s.checkDrift(now)...)
	}
	for _, at := range configured {
		configuredSwitches[at.Switch] = true
	}
	var unnamed []string
	for _, s := range connected {
		if !configuredSwitches[s.ID] {
			unnamed = append(unnamed, fmt.Sprintf("%v from %s", s.ID, s.Address))
		}
	}
	reported := map[openflow.DatapathID]bool{}
	for _, at := range slices.SortedFunc(slices.Values(configured), topology.PortRef.Compare) {
		s, connected := known[at.Switch]
		switch {
		case connected && at.Port != 0:
			out = append(out, s.checkPort(at)...)
		case !connected && !reported[at.Switch]:
			reported[at.Switch] = true
			out = append(out, absentSwitch(at.Switch, unnamed))
		}
	}
	return out
}

// maxUnnamed limits the listed switches that the configuration does not name.
const maxUnnamed = 4

// absentSwitch returns the finding for a switch that is not connected. unnamed lists connected
// switches that the configuration does not name.
func absentSwitch(d openflow.DatapathID, unnamed []string) Finding {
	f := Finding{
		Fault: Absent, Level: Fail, From: topology.PortRef{Switch: d}, Found: "the configuration names this switch, and it is not connected",
		Remedy: "see on the switch which controller it is set to, and its state (Open vSwitch: sluice doctor --role switch); then whether the address can be reached from there, and what this controller's log says of its certificate",
	}
	if n := len(unnamed); n > 0 {
		if n > maxUnnamed {
			unnamed = append(slices.Clone(unnamed[:maxUnnamed]), fmt.Sprintf("%d more", n-maxUnnamed))
		}
		f.Found += "; connected are, without being named, " + strings.Join(unnamed, ", ")
		f.Remedy = "if one of these is it, its datapath ID is another than the configuration says: set one of the two. Else " + f.Remedy
	}
	return f
}

// checkDrift returns a finding if something keeps changing what is declared for the switch.
func (s Switch) checkDrift(now time.Time) []Finding {
	if s.Drift.Times < driftTimes || now.Sub(s.Drift.Last) > driftWithin {
		return nil
	}
	var what []string
	for _, name := range slices.Sorted(maps.Keys(s.Drift.Differences)) {
		what = append(what, fmt.Sprintf("%s %d", name, s.Drift.Differences[name]))
	}
	return []Finding{{
		Fault: Drifting, Level: Warn, From: topology.PortRef{Switch: s.ID},
		Found:  fmt.Sprintf("%d comparisons have found the switch not as declared, the latest %v ago: %s", s.Drift.Times, now.Sub(s.Drift.Last).Round(time.Second), strings.Join(what, ", ")),
		Remedy: "look for another controller on this switch, a script with ovs-ofctl, or rules that the switch drops by itself (its log, its firmware): until then packets go astray each time, for as long as it takes to repair the switch",
	}}
}

// checkPort returns the fault of a port of the configuration, if it has one.
func (s Switch) checkPort(at topology.PortRef) []Finding {
	up, exists := s.Ports[at.Port]
	switch {
	case !exists:
		return []Finding{{
			Fault: NoPort, Level: Fail, From: at, Found: "the configuration names this port, and the switch has none of this number",
			Remedy: "see whether the port is in the switch's OpenFlow instance, and has kept its number (sluice network switches)",
		}}
	case !up:
		return []Finding{{
			Fault: PortDown, Level: Warn, From: at, Found: "the configuration names this port, and it is down",
			Remedy: "look at cable, optic and the far end, and whether the port is switched off",
		}}
	}
	return nil
}
