package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// The faults of switches and their ports.
const (
	Absent   Fault = "absent"    // a switch of the configuration is not connected
	Slave    Fault = "slave"     // another controller is master of a switch
	NoPort   Fault = "no-port"   // a switch does not have a port of the configuration
	PortDown Fault = "port-down" // a port of the configuration is down
)

// Switch is what is known of a switch that is connected.
type Switch struct {
	ID openflow.DatapathID
	// Address is where it connects from.
	Address string
	Role    openflow.Role
	// Ports says which ports it has, and whether each is up.
	Ports map[uint32]bool
}

// Switches says what is wrong with those that are connected, and which of the
// configuration are not. A place of the configuration is a port, or with port 0 a switch.
func Switches(configured []topology.PortRef, connected []Switch) (out []Finding) {
	known, named := map[openflow.DatapathID]Switch{}, map[openflow.DatapathID]bool{}
	for _, s := range connected {
		known[s.ID] = s
		if s.Role == openflow.RoleSlave {
			out = append(out, Finding{
				Fault: Slave, Level: Fail, From: topology.PortRef{Switch: s.ID}, Found: "another controller is the switch's master: it takes no rules from this one",
				Remedy: "have the switch connect to this controller only, or give it the role master (openflow.role)",
			})
		}
	}
	for _, at := range configured {
		named[at.Switch] = true
	}
	var strangers []string
	for _, s := range connected {
		if !named[s.ID] {
			strangers = append(strangers, fmt.Sprintf("%v from %s", s.ID, s.Address))
		}
	}
	told := map[openflow.DatapathID]bool{}
	for _, at := range slices.SortedFunc(slices.Values(configured), topology.PortRef.Compare) {
		s, connected := known[at.Switch]
		switch {
		case connected && at.Port != 0:
			out = append(out, s.port(at)...)
		case !connected && !told[at.Switch]:
			told[at.Switch] = true
			out = append(out, absent(at.Switch, strangers))
		}
	}
	return out
}

// maxStrangers is how many switches are named that the configuration does not name.
const maxStrangers = 4

// absent tells of a switch that is not connected. Strangers are switches that are, and
// that the configuration does not name.
func absent(d openflow.DatapathID, strangers []string) Finding {
	f := Finding{
		Fault: Absent, Level: Fail, From: topology.PortRef{Switch: d}, Found: "the configuration names this switch, and it is not connected",
		Remedy: "see on the switch which controller it is set to, and its state (Open vSwitch: sluice doctor --role switch); then whether the address can be reached from there, and what this controller's log says of its certificate",
	}
	if n := len(strangers); n > 0 {
		if n > maxStrangers {
			strangers = append(slices.Clone(strangers[:maxStrangers]), fmt.Sprintf("%d more", n-maxStrangers))
		}
		f.Found += "; connected are, without being named, " + strings.Join(strangers, ", ")
		f.Remedy = "if one of these is it, its datapath ID is another than the configuration says: set one of the two. Else " + f.Remedy
	}
	return f
}

// port says what is wrong with a port of the configuration.
func (s Switch) port(at topology.PortRef) []Finding {
	up, there := s.Ports[at.Port]
	switch {
	case !there:
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
