package network

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network/multipath"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// destinations are the switches with all that is behind them.
func (x *proactive) destinations() map[openflow.DatapathID]multipath.Destination {
	out := map[openflow.DatapathID]multipath.Destination{}
	for _, prefix := range slices.SortedFunc(maps.Keys(x.cfg.ForwardPrefixes), netip.Prefix.Compare) {
		sw := x.cfg.ForwardPrefixes[prefix]
		d := out[sw]
		d.Switch, d.Prefixes = sw, append(d.Prefixes, prefix)
		out[sw] = d
	}
	for _, h := range x.led() {
		d := out[h.At.Switch]
		vlan := h.VLAN
		if x.cfg.IgnoreVLAN {
			vlan = rule.AnyVLAN
		}
		d.Switch, d.Hosts = h.At.Switch, append(d.Hosts, multipath.Host{MAC: h.MAC, VLAN: vlan, Port: h.At.Port, Local: d.Covers(h.IPs)})
		out[h.At.Switch] = d
	}
	return out
}

// led are the hosts that have rules. If there are more than a switch may have rules for, the
// packets of the others go by way of the controller: they are those of the ports with the most.
func (x *proactive) led() []topology.Host {
	all := x.hosts.All()
	most := max(0, x.cfg.ForwardRules-len(x.cfg.ForwardPrefixes))
	if len(all) <= most {
		return all
	}
	x.full.Warn(x.owner.in.log, "there are more hosts than rules by destination may be for", "hosts", len(all), "rules", x.cfg.ForwardRules)
	type place struct {
		host topology.Host
		turn int // at its port
	}
	behind, places := map[PortRef]int{}, make([]place, len(all))
	for i, h := range all {
		places[i] = place{h, behind[h.At]}
		behind[h.At]++
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.turn, b.turn) })
	for i := range all {
		all[i] = places[i].host
	}
	return all[:most]
}
