package plugin

import (
	"context"
	"errors"
	"net/netip"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// keyAnswer begins the keys, in the ledger, of the rules by which switches answer.
const keyAnswer = "answer/"

// answers is what switches answer by themselves about a device: its gateway, who has
// the device's address, and the device, who has the gateway's. Hosts ask again for
// what they know already, and send no more packets when nobody answers: without a
// controller that would be so after half a minute. Every other question, also the
// first from a place, comes to the controller.
type answers struct {
	ip, gateway      netip.Addr
	home, gatewayMAC openflow.MAC
	// at is where the device asks, with mac; zero if it is in another domain.
	at  network.PortRef
	mac openflow.MAC
}

// answersOf is what switches are to answer about a device now. It is zero while its
// gateway is not known, or if it is nowhere.
func (s *guards) answersOf(id string) answers {
	v := s.view.Load()
	d, known := s.registry.Device(id)
	l, _ := s.registry.Lease(id)
	if v == nil || !known || l.Attachment == nil || !l.Active(s.now()) {
		return answers{}
	}
	pool, _ := s.registry.Pool(l.Pool)
	mac, target, _ := s.resolve(v, id, pool.Gateway)
	if target != targetGateway || mac.IsZero() {
		return answers{}
	}
	a := answers{ip: l.IP, gateway: pool.Gateway, home: d.HomeMAC(), gatewayMAC: mac}
	if l.Attachment.Peer == "" {
		a.at, a.mac = l.Attachment.At, l.Attachment.MAC
	}
	return a
}

// rules are those of the switches that can answer: at the border ports that lead to the
// gateway and, for the device, at its edge.
func (a answers) rules(borders []Border, mute map[openflow.DatapathID]bool) []network.Rule {
	var out []network.Rule
	add := func(r network.Rule) {
		if !mute[r.Switch] {
			out = append(out, r)
		}
	}
	if a == (answers{}) {
		return nil
	}
	for _, r := range borders {
		if r.Peer == "" {
			add(answerRule(r.At, a.gateway, a.gatewayMAC, a.ip, a.home))
		}
	}
	if !a.at.IsZero() {
		add(answerRule(a.at, a.ip, a.mac, a.gateway, a.gatewayMAC))
	}
	return out
}

// answerRule has a switch turn one host's question for an address into its answer.
func answerRule(at network.PortRef, asker netip.Addr, askerMAC openflow.MAC, asked netip.Addr, mac openflow.MAC) network.Rule {
	return network.Rule{
		Switch: at.Switch, Stage: network.StageAdmit, Offset: rule.AdmitAnswer,
		Match: openflow.MustMatch(openflow.InPort(at.Port), openflow.EthSrc(askerMAC), openflow.EthType(packet.TypeARP), openflow.ARPOp(packet.ARPRequest),
			openflow.ARPSPA(asker), openflow.ARPSHA(askerMAC), openflow.ARPTPA(asked)),
		Actions: []openflow.Action{
			openflow.SetField(openflow.EthDst(askerMAC)), openflow.SetField(openflow.EthSrc(mac)), openflow.SetField(openflow.ARPOp(packet.ARPReply)),
			openflow.SetField(openflow.ARPSPA(asked)), openflow.SetField(openflow.ARPSHA(mac)),
			openflow.SetField(openflow.ARPTPA(asker)), openflow.SetField(openflow.ARPTHA(askerMAC)),
			openflow.Output(openflow.PortInPort),
		},
	}
}

// teach has switches answer about a device what is so now. It runs in the device's
// turn of the work queue. A switch that cannot write into ARP leaves that to the controller.
func (s *guards) teach(ctx context.Context, id string) {
	now := s.answersOf(id)
	s.mu.Lock()
	m := s.mobiles[id]
	if m == nil || m.answers == now {
		s.mu.Unlock()
		return
	}
	program := rule.Program{Rules: now.rules(s.settings.Borders, s.mute)}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	err := s.rules.Apply(ctx, keyAnswer+id, program, rule.ApplyOptions{AllowDown: true})
	if re, ok := errors.AsType[*network.RuleError](err); ok && errors.Is(err, network.ErrRefused) {
		s.log.Info("a switch cannot answer ARP; the controller does", "switch", re.Switch, "error", err)
		s.change(func() { s.mute[re.Switch] = true }) // those that can are told at the next look
		return
	}
	if err != nil {
		s.log.Debug("switches do not answer ARP about a device; the controller does", "device", id, "error", err)
		return
	}
	s.change(func() { m.answers = now })
}

// unanswered says whether switches answer about a device what is not so.
func (s *guards) unanswered(l *registry.Lease) bool {
	now := s.answersOf(l.Device)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mobiles[l.Device]
	return m != nil && m.state != nowhere && m.answers != now
}
