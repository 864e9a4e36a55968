package diagnosis

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// The faults of hosts' places.
const (
	TwoVLANs Fault = "two-vlans" // an address is in two VLANs at two places
	Loop     Fault = "loop"      // a port is blocked because a foreign bridge closes a loop
	Flapping Fault = "flapping"  // an address moves back and forth
	NoHost   Fault = "no-host"   // no host has an address that a service needs
	Silent   Fault = "silent"    // a host that a service needs does not answer
)

// Addresses returns faults in the places of hosts. A MAC address in two VLANs behind one port
// belongs to a router, which is no fault. In two VLANs at two ports it most likely belongs to one
// host that looks like two, because a circuit translates VLANs.
func Addresses(hosts []topology.Host) (out []Finding) {
	first := map[openflow.MAC]topology.Host{}
	for _, h := range hosts {
		o, seen := first[h.MAC]
		switch {
		case !seen:
			first[h.MAC] = h
		case o.VLAN != h.VLAN && o.At != h.At:
			out = append(out, Finding{
				Fault: TwoVLANs, Level: Warn, From: h.At,
				Found:  fmt.Sprintf("host %v is in VLAN %d here, and in VLAN %d at %v", h.MAC, h.VLAN, o.VLAN, o.At),
				Remedy: "if a circuit between the two translates VLANs, set network.ignore_vlan; else two hosts have one address, or one host is in both VLANs by two cables",
			})
		}
	}
	return out
}

// FlappingTimes is the number of moves of an address within ten minutes, claimed ones included,
// from which it is reported.
const FlappingTimes = 10

// Moving returns a finding for each host that has moved, or was claimed to have moved, too
// often.
func Moving(restless []hosts.FlappingHost) (out []Finding) {
	for _, r := range restless {
		out = append(out, Finding{
			Fault: Flapping, Level: Warn, From: r.Host.At,
			Found:  fmt.Sprintf("host %v has moved, or is said to have, %d times since %s, the last time from or to %v", r.Host.MAC, r.Times, r.Since.Format(time.TimeOnly), r.Elsewhere),
			Remedy: "look for two hosts with one address, a loop between the two ports outside the network, or a host with two cables whose bond is not one of the switch; pin it (network.hosts.pinned) if somebody pretends to be it",
		})
	}
	return out
}

// Loops returns a finding for each port that is blocked because of a loop. reason returns the
// description of a loop.
func Loops(loops []discovery.Loop, reason func(discovery.Loop) string) (out []Finding) {
	for _, l := range loops {
		out = append(out, Finding{
			Fault: Loop, Level: Warn, From: l.Blocked, Found: reason(l),
			Remedy: "remove one of the two cables, or keep the blocked one as a spare that is used when the other one goes down",
		})
	}
	return out
}

// Needed is an address at which a service needs a host.
type Needed struct {
	Addr netip.Addr
	// Who describes the host, such as "agent a1 of SOS".
	Who string
	// Drift says what other programs on the host's machine keep changing, and DriftRemedy what to do
	// about it. They are empty if nothing of the kind is known.
	Drift, DriftRemedy string
}

// HostDrift returns the finding for a needed host whose machine drifts. known reports whether the
// host table has the host, h.
func HostDrift(n Needed, h topology.Host, known bool) Finding {
	f := Finding{Fault: Drifting, Level: Warn, Found: n.Who + " " + n.Drift, Remedy: n.DriftRemedy}
	if known {
		f.From = h.At
	}
	return f
}

// Unanswered returns the finding for a needed address for which no host answers. known reports
// whether the host table has a host, h, with the address.
func Unanswered(n Needed, h topology.Host, known bool) Finding {
	if !known {
		return Finding{
			Fault: NoHost, Level: Fail, Found: fmt.Sprintf("%v, the address of %s, is nobody's: nobody answers, at no port", n.Addr, n.Who),
			Remedy: "see whether the machine is up, has this address, and is on a port of a switch of this network; then whether anything on it drops ARP or neighbour discovery",
		}
	}
	return Finding{
		Fault: Silent, Level: Fail, From: h.At, Found: fmt.Sprintf("%v, the address of %s, was at this port as %v and does not answer", n.Addr, n.Who, h.MAC),
		Remedy: "see whether the machine is up and its data interface too, and what is between it and the port",
	}
}
