package diagnosis

import (
	"fmt"

	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// TwoVLANs is the fault of an address that is in two VLANs at two places.
const TwoVLANs Fault = "two-vlans"

// Addresses says what is wrong with the places of hosts. One address in two VLANs behind
// one port is a router's; at two ports it is most likely one host, behind a circuit that
// translates VLANs, that is taken for two.
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
