package handover

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// handleARP answers ARP for gateways, for the DHCP server, and for devices wherever they are.
// Packets about other addresses are left to the chain.
func (s *guards) handleARP(v *view, at network.PortRef, h *packet.Headers, arrived time.Time) network.Verdict {
	border, isBorder := v.borders[at]
	if isBorder && !h.Src.IsUnspecified() && s.gateways.learn(h.Src, h.ARPSHA, border.Peer) {
		s.wake() // the switches' answers have to be updated
	}
	switch {
	case !isBorder && s.isForged(v, h):
		return s.dropViolation(s.forgers, at, h, arrived)
	case isBorder && isForeignGateway(v, border, h.Src):
		s.metrics.forged.WithLabelValues("controller").Inc()
		return network.Stop
	}
	if !isBorder {
		s.noteUnreachable(v, at, h, arrived)
	}
	if h.ARPOp == packet.ARPReply {
		return s.handleARPReply(at, isBorder, h, arrived)
	}
	if h.ARPOp != packet.ARPRequest {
		return network.Continue
	}
	asker, known := s.registry.DeviceByMAC(h.EthSrc)
	if !isBorder && known && h.Src == h.Dst {
		return network.Stop // an announcement: DHCP has already told those who need to know
	}
	mac, target, ours := s.resolve(v, asker.ID, h.Dst)
	switch {
	case !isBorder && !ours && known && s.askBehindBorder(v, asker, h):
		return network.Stop
	case !ours, isBorder && !mayAsk(v, border, target, h.Dst):
		return network.Continue
	}
	if target == targetGateway && !isBorder && h.Src.IsUnspecified() && !s.hasPath(at) {
		return network.Stop // a device asks whether the gateway is reachable from its place; without a path to the border ports it is not
	}
	if mac.IsZero() {
		return network.Stop // the device's own address, or a gateway that is still being looked up
	}
	if err := s.net.Send(at, packet.AppendARPReply(nil, h, mac)); err == nil {
		s.metrics.arp.WithLabelValues(target).Inc()
	}
	return network.Stop
}

// isForeignGateway reports whether an address is that of a gateway to which another border port
// leads.
func isForeignGateway(v *view, border Border, ip netip.Addr) bool {
	g, gateway := v.gateways[ip]
	return gateway && g.peer != border.Peer
}

// mayAsk reports whether an ARP request that came in by a border port is answered. Any host there may
// ask for devices. Another domain may also ask for our gateways.
func mayAsk(v *view, border Border, target string, ip netip.Addr) bool {
	g := v.gateways[ip]
	return target == targetDevice || target == targetGateway && border.Peer != "" && g.peer == ""
}

// The kinds of addresses that ARP requests ask for.
const (
	targetGateway = "gateway"
	targetServer  = "server"
	targetDevice  = "device"
)

// resolve returns the MAC address to answer with when asker asks for an address. target is the kind of
// the address. If ours is set and the MAC address is zero, nobody must answer.
func (s *guards) resolve(v *view, asker string, ip netip.Addr) (mac openflow.MAC, target string, ours bool) {
	if g, ok := v.gateways[ip]; ok {
		if g.mac.IsZero() {
			g.mac = s.gateways.lookup(ip)
		}
		return g.mac, targetGateway, true
	}
	if v.servers[ip] {
		return serverMAC, targetServer, true
	}
	d, ok := s.leaseHolder(ip)
	if !ok {
		return openflow.MAC{}, "", false
	}
	if d.ID == asker {
		return openflow.MAC{}, targetDevice, true
	}
	return d.HomeMAC(), targetDevice, true
}

// handleARPReply handles replies to the service's own requests. It drops other replies about devices,
// which only the controller may send.
func (s *guards) handleARPReply(at network.PortRef, isBorder bool, h *packet.Headers, arrived time.Time) network.Verdict {
	if h.EthDst == serverMAC {
		s.pings.answered(at, h.Src, arrived)
		return network.Stop
	}
	if _, device := s.leaseHolder(h.Src); device || isBorder && s.relayAnswer(h) {
		return network.Stop
	}
	return network.Continue
}

// keyAnswer begins the ledger keys of the rules by which switches answer ARP.
const keyAnswer = "answer/"

// answers holds the ARP answers that switches give about a device without the controller. Its gateway
// gets the device's MAC address, and the device gets the gateway's. Hosts ask again for addresses that
// they know already, and stop sending when nobody answers; without a controller that would happen
// after half a minute. All other requests, including the first from a new place, go to the controller.
type answers struct {
	ip, gateway      netip.Addr
	home, gatewayMAC openflow.MAC
	// at is the port where the device asks, and mac the MAC address that it uses there. Both are zero
	// if the device is in another domain.
	at  network.PortRef
	mac openflow.MAC
}

// answersOf returns the answers that switches should give about a device now. The result is zero while
// the gateway's MAC address is unknown, or if the device has no place.
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

// rules returns the rules of the switches that answer: those with border ports that lead to the
// gateway, and the device's edge switch. It omits the switches in cannotAnswer.
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

// answerRule returns a rule by which a switch rewrites one host's ARP request for an address into the
// reply.
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

// answersOutdated reports whether the answers of switches about a device have to be updated.
func (s *guards) answersOutdated(l *registry.Lease) bool {
	now := s.answersOf(l.Device)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.placement.mobiles[l.Device]
	return m != nil && m.state != detached && m.answers != now
}

// askUnknown is the interval of the ARP requests for a router at the border ports while its MAC
// address is unknown. askKnown is the interval after that.
const (
	askUnknown = time.Second
	askKnown   = 30 * time.Second
)

// gateways holds the routers at the border ports, whose MAC addresses devices have to know. Only
// packets from the right border port count, so a device cannot pass itself off as the gateway. Our
// own gateways are at the uplinks. Requests for the gateways of another domain's devices go over the
// peering, where that domain's controller answers.
type gateways struct {
	asking kit.Loop // woken when a host asks for a gateway whose MAC address is unknown

	mu    sync.Mutex
	known map[netip.Addr]gateway // one entry for each address that has to be found
}

// gateway is one router at a border port.
type gateway struct {
	peer  string // domain whose peering leads to the gateway, empty for the uplinks
	mac   openflow.MAC
	asked time.Time
}

// newGateways returns gateways without any address to be found.
func newGateways() *gateways {
	return &gateways{asking: kit.NewLoop(), known: map[netip.Addr]gateway{}}
}

// setWanted sets the addresses that have to be found. The value of each is the domain whose peering
// leads to it, or an empty string for an address at the uplinks.
func (g *gateways) setWanted(all map[netip.Addr]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := make(map[netip.Addr]gateway, len(all))
	for ip, peer := range all {
		k := g.known[ip]
		if k.peer != peer {
			k = gateway{peer: peer}
		}
		known[ip] = k
	}
	g.known = known
}

// learn records the sender of an ARP packet from a border port that leads to peer, and reports
// whether that changed a gateway's MAC address.
func (g *gateways) learn(ip netip.Addr, mac openflow.MAC, peer string) (changed bool) {
	if mac.IsZero() || mac.IsMulticast() || mac == serverMAC {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if k, wanted := g.known[ip]; wanted && k.peer == peer {
		changed = k.mac != mac
		k.mac = mac
		g.known[ip] = k
	}
	return changed
}

// lookup returns the gateway's MAC address. If it is unknown, lookup returns zero and starts
// asking for it.
func (g *gateways) lookup(ip netip.Addr) openflow.MAC {
	g.mu.Lock()
	mac := g.known[ip].mac
	g.mu.Unlock()
	if mac.IsZero() {
		g.asking.Wake()
	}
	return mac
}

// askAgain makes all gateways with an unknown MAC address due at once. It is called when a border
// port has come up.
func (g *gateways) askAgain() {
	g.mu.Lock()
	for ip, k := range g.known {
		if k.mac.IsZero() {
			k.asked = time.Time{}
			g.known[ip] = k
		}
	}
	g.mu.Unlock()
	g.asking.Wake()
}

// due returns the gateways that have to be asked for now, and marks them as asked.
func (g *gateways) due(now time.Time) map[netip.Addr]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[netip.Addr]string{}
	for ip, k := range g.known {
		pause := askUnknown
		if !k.mac.IsZero() {
			pause = askKnown
		}
		if now.Sub(k.asked) >= pause-askUnknown/10 {
			k.asked = now
			g.known[ip] = k
			out[ip] = k.peer
		}
	}
	return out
}

// findGateways sends ARP requests for the gateways that are due.
func (s *guards) findGateways(context.Context) {
	for ip, peer := range s.gateways.due(s.now()) {
		s.askAtBorders(ip, peer)
	}
}

// askAtBorders sends an ARP request for an address out of the border ports that lead to peer. The
// sender address is unspecified, so that receivers do not change their tables.
func (s *guards) askAtBorders(ip netip.Addr, peer string) {
	v := s.view.Load()
	if v == nil {
		return
	}
	frame := packet.AppendARPRequest(nil, serverMAC, netip.IPv4Unspecified(), ip, 0)
	for at, border := range v.borders {
		if border.Peer == peer {
			_ = s.net.Send(at, frame) // fails if the switch is down; the request is sent again once the port is up
		}
	}
}
