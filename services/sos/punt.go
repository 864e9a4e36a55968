package sos

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	tcpSYN = 0x002
	tcpRST = 0x004
	tcpACK = 0x010

	// wholePacket is the length in an output action that makes a switch send the whole packet to
	// the controller.
	wholePacket = 0xffff
)

// punt describes the packets that one punt rule matches.
type punt struct {
	client, server netip.Prefix
	port           portBlock
}

// punts returns the combinations of an entry's clients, servers and ports.
func punts(e *Entry) []punt {
	var out []punt
	for _, c := range e.Clients {
		for _, s := range e.Servers {
			if c.Addr().Is4() != s.Addr().Is4() {
				continue
			}
			for _, r := range e.Ports {
				for _, b := range r.blocks() {
					out = append(out, punt{c, s, b})
				}
			}
		}
	}
	return out
}

// Punts returns the rules that send the first packets of whitelisted connections from one switch to
// the controller. If flags is false, the switch cannot match TCP flags, and sends all packets of
// these connections; the service then leaves all but the first to default forwarding.
//
// The punt rules are leased: the switch removes them after a time without a controller. Below each
// stands a permanent rule that changes nothing, so that a switch examines the same fields of a
// packet with and without the punt rules. Otherwise the flows that Open vSwitch caches without a
// controller would cover first packets, too. When the controller is back, Open vSwitch may update
// such a cached flow in place, and then first packets go directly for as long as they keep the flow
// alive (docs/topics/cached-decisions.md).
func Punts(w Whitelist, at time.Time, dpid openflow.DatapathID, flags bool) ([]network.Rule, error) {
	var rules []network.Rule
	seen := make(map[openflow.Match]bool)
	for i := range w {
		if !w[i].Active(at) {
			continue
		}
		for _, p := range punts(&w[i]) {
			m, err := p.match(flags)
			if err != nil {
				return nil, fmt.Errorf("whitelist entry %s: %w", w[i].ID, err)
			}
			if seen[m] {
				continue
			}
			seen[m] = true
			rules = append(rules, network.Rule{
				Switch: dpid, Stage: network.StageSelect, Offset: rule.SelectConnection, Match: m, Leased: true,
				Actions: []openflow.Action{openflow.OutputController(wholePacket)},
			})
			if flags {
				rules = append(rules, network.Rule{
					Switch: dpid, Stage: network.StageSelect, Offset: rule.SelectOpen, Match: m, Goto: rule.TableRoute,
				})
			}
		}
	}
	return rules, nil
}

func (p punt) match(flags bool) (openflow.Match, error) {
	fields := []openflow.OXM{
		openflow.EthType(etherType(p.client.Addr())), openflow.IPProto(protoTCP),
		openflow.TCPDst(p.port.value).WithMask(uint64(p.port.mask)),
	}
	if p.client.Bits() > 0 {
		fields = append(fields, openflow.IPSrcPrefix(p.client))
	}
	if p.server.Bits() > 0 {
		fields = append(fields, openflow.IPDstPrefix(p.server))
	}
	if flags {
		fields = append(fields, openflow.TCPFlags(tcpSYN, tcpSYN|tcpACK))
	}
	return openflow.NewMatch(fields...)
}
