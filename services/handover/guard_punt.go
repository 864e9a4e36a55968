package handover

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Ledger keys of the rules that every switch has.
const (
	keyPunt  = "punt"
	keySpoof = "spoof"
)

// punts returns the rules by which one switch sends DHCP, and ARP about devices and their
// gateways, to the controller. Every switch has them, because a device may attach anywhere.
func (v *view) punts(d openflow.DatapathID) []network.Rule {
	up := []openflow.Action{openflow.OutputController(wholePacket)}
	rules := []network.Rule{
		{Switch: d, Stage: network.StageAdmit, Offset: rule.AdmitDHCP, Actions: up, Match: openflow.MustMatch(
			openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoUDP), openflow.UDPSrc(dhcpClientPort), openflow.UDPDst(dhcpServerPort))},
		{Switch: d, Stage: network.StageAdmit, Actions: up, Match: openflow.MustMatch(
			openflow.EthType(packet.TypeARP), openflow.EthDst(serverMAC))},
	}
	for _, m := range v.arp(openflow.ARPTPA) {
		rules = append(rules, network.Rule{Switch: d, Stage: network.StageAdmit, Match: m, Actions: up})
	}
	for _, m := range append(v.arp(openflow.ARPSPA, openflow.ARPOp(packet.ARPReply)), fromServers()) {
		rules = append(rules, network.Rule{Switch: d, Stage: network.StageAdmit, Offset: rule.AdmitOffence, Match: m, Actions: up})
	}
	return rules
}

// arp returns matches of the ARP packets that have, in one field, an address of a network of devices
// or the DHCP server's. field returns the match of an address in that field, and more is added to each
// match.
func (v *view) arp(field func(netip.Addr) openflow.OXM, more ...openflow.OXM) []openflow.Match {
	var out []openflow.Match
	add := func(address openflow.OXM) {
		m := openflow.MustMatch(append([]openflow.OXM{openflow.EthType(packet.TypeARP), address}, more...)...)
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	for _, n := range v.networks {
		add(withPrefix(field(n.prefix.Addr()), n.prefix))
	}
	for _, a := range v.own {
		if _, within := v.homeOf(a); !within {
			add(field(a))
		}
	}
	return out
}

// withPrefix returns the match of an IPv4 address, widened to a prefix.
func withPrefix(host openflow.OXM, p netip.Prefix) openflow.OXM {
	return host.WithMask(uint64(^uint32(0) << (32 - p.Bits())))
}

// assignable returns the addresses that a pool gives out, as prefixes.
func assignable(p registry.Pool) []netip.Prefix {
	if !p.First.IsValid() {
		return nil
	}
	var out []netip.Prefix
	first := p.First
	own := []netip.Addr{p.Gateway, p.ServerID()}
	slices.SortFunc(own, netip.Addr.Compare)
	for _, a := range own {
		if !a.Less(first) && !p.Last.Less(a) {
			out = append(out, splitRange(first, a.Prev())...)
			first = a.Next()
		}
	}
	return append(out, splitRange(first, p.Last)...)
}

// splitRange splits a range of IPv4 addresses into the fewest prefixes.
func splitRange(first, last netip.Addr) []netip.Prefix {
	if !first.IsValid() || !last.IsValid() || last.Less(first) {
		return nil
	}
	number := func(a netip.Addr) uint64 { b := a.As4(); return uint64(binary.BigEndian.Uint32(b[:])) }
	var out []netip.Prefix
	for next, end := number(first), number(last)+1; next < end; {
		bits := 0 // log2 of the block's size
		for bits < 32 && next&(1<<bits) == 0 && next+(2<<bits) <= end {
			bits++
		}
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(next))
		out = append(out, netip.PrefixFrom(netip.AddrFrom4(b), 32-bits))
		next += 1 << bits
	}
	return out
}

// EverySwitch returns the rules that a switch has whether or not a device is attached to it. punts
// send DHCP and ARP to the controller. guards, for a switch with meters, send it the packets that have
// a device's address but come from a port where no device with it is known.
func EverySwitch(d openflow.DatapathID, borders []Border, pools []registry.Pool) (punts, guards rule.Program) {
	v, _ := newView(borders, pools)
	return v.everySwitch(d, borders), spoofRules(d, v.given, spoofToController)
}

// everySwitch returns the punt rules and peering guards of a switch.
func (v *view) everySwitch(d openflow.DatapathID, borders []Border) rule.Program {
	return rule.Program{Rules: append(v.punts(d), peeringGuards(d, borders)...)}
}

// applyPunts declares the punt rules of all switches, including those that connect later.
func (s *guards) applyPunts(ctx context.Context) {
	v := s.view.Load()
	if v == nil || len(s.settings.Borders) == 0 {
		return // without a border port devices cannot be served, and DHCP is left to others
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	s.recordPuntErrors(s.rules.EverySwitch(ctx, keyPunt, func(d openflow.DatapathID) rule.Program {
		return v.everySwitch(d, s.settings.Borders)
	}))
	s.applySpoofRules(ctx, v.given)
}

// applySpoofRules declares the spoof rules of all switches. A switch that refuses them gets the rules
// of the next simpler mode.
func (s *guards) applySpoofRules(ctx context.Context, given []netip.Prefix) {
	for {
		refused := s.rules.EverySwitch(ctx, keySpoof, func(d openflow.DatapathID) rule.Program {
			s.mu.Lock()
			defer s.mu.Unlock()
			return spoofRules(d, given, s.spoofModes[d])
		})
		again := false
		s.mu.Lock()
		for d, err := range refused {
			if errors.Is(err, network.ErrRefused) && s.spoofModes[d] < spoofDrop {
				s.spoofModes[d]++
				again = true
			}
		}
		s.mu.Unlock()
		if again {
			continue
		}
		for d, err := range refused {
			if !errors.Is(err, context.Canceled) {
				s.log.Error("switch does not hold devices to their addresses", "switch", d, "error", err)
			}
		}
		return
	}
}

// recordPuntErrors records the switches that refuse their punt rules.
func (s *guards) recordPuntErrors(refused map[openflow.DatapathID]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := map[openflow.DatapathID]string{}
	for d, err := range refused {
		if errors.Is(err, context.Canceled) {
			continue
		}
		if errs[d] = err.Error(); errs[d] != s.puntErrs[d] {
			s.log.Error("switch does not send DHCP and ARP up; devices there are not served", "switch", d, "error", err)
		}
	}
	s.puntErrs = errs
}
