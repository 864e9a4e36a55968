package handover

import (
	"context"
	"errors"
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// keyAnswer begins the ledger keys of the rules by which switches answer ARP.
const keyAnswer = "answer/"

// answers holds what switches answer by themselves about a device: to its gateway, the device's
// MAC address, and to the device, the gateway's. Hosts ask again for addresses that they know
// already, and stop sending when nobody answers; without a controller that would happen after half
// a minute. All other questions, including the first from a new place, go to the controller.
type answers struct {
	ip, gateway      netip.Addr
	home, gatewayMAC openflow.MAC
	// at is the port where the device asks, with mac; zero if the device is in another domain.
	at  network.PortRef
	mac openflow.MAC
}

// answersOf returns what switches should answer about a device now. It is zero while the gateway's
// MAC address is not known, or if the device has no place.
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

// rules returns the rules of the switches that can answer: those with border ports that lead to
// the gateway and, for the device, its edge switch.
func (a answers) rules(borders []Border, cannotAnswer map[openflow.DatapathID]bool) []network.Rule {
	var out []network.Rule
	add := func(r network.Rule) {
		if !cannotAnswer[r.Switch] {
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

// answerRule returns a rule by which a switch turns one host's question for an address into its
// answer.
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

// updateAnswers brings the rules by which switches answer about a device up to date. It runs as a
// job of the device in the work queue. A switch that cannot rewrite ARP leaves the answers to the
// controller.
func (s *guards) updateAnswers(ctx context.Context, id string) {
	now := s.answersOf(id)
	s.mu.Lock()
	m := s.placement.mobiles[id]
	if m == nil || m.answers == now {
		s.mu.Unlock()
		return
	}
	program := rule.Program{Rules: now.rules(s.settings.Borders, s.cannotAnswer)}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	err := s.rules.Apply(ctx, keyAnswer+id, program, rule.ApplyOptions{AllowDown: true})
	if re, ok := errors.AsType[*network.RuleError](err); ok && errors.Is(err, network.ErrRefused) {
		s.log.Info("a switch cannot answer ARP; the controller does", "switch", re.Switch, "error", err)
		s.change(func() { s.cannotAnswer[re.Switch] = true }) // the next reconciliation writes the rules of the other switches
		return
	}
	if err != nil {
		s.log.Debug("switches do not answer ARP about a device; the controller does", "device", id, "error", err)
		return
	}
	s.change(func() { m.answers = now })
}

// answersOutdated reports whether what switches answer about a device is not up to date.
func (s *guards) answersOutdated(l *registry.Lease) bool {
	now := s.answersOf(l.Device)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.placement.mobiles[l.Device]
	return m != nil && m.state != detached && m.answers != now
}
