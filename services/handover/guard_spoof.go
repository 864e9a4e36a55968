package handover

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

const (
	// spoofMeter is the number of the meter of the spoof rules. spoofRate is its rate in packets per
	// second, and its burst in packets. A switch may apply rules some time after it has confirmed
	// them; the burst allows for what one device sends until then. The controller can handle this
	// rate.
	spoofMeter = 0x3001
	spoofRate  = 2000
)

// spoofMode is how a switch treats packets with a device's address that come from elsewhere.
type spoofMode uint8

// The modes. Each switch is tried with the first one, and gets the next one if it refuses the rules.
const (
	// spoofToController: such packets go to the controller, and cached decisions about a device
	// that has left are deleted with its rules.
	spoofToController spoofMode = iota
	// spoofToControllerStale: the same, but cached decisions may outlive the rules.
	spoofToControllerStale
	// spoofDrop: such packets are dropped, because the switch has no meters.
	spoofDrop
)

// spoofRules returns the rules for packets with an address of our pools from a port where no
// device with that address is known. On a switch with meters such packets go to the controller, which
// drops them unless the switch has applied an outdated cached decision: when a device returns to a
// place, the switch may still have the decision from the time after the device had left. On a switch
// without meters the rules drop the packets. Such switches are not known to cache decisions.
//
// For Open vSwitch there is a second rule for each prefix, which also matches ECN and has the same
// actions. A cached decision about a device's packets does not cover ECN. With the second rule, Open
// vSwitch deletes the decision together with the device's rules. Without it, Open vSwitch turns the
// decision into one that sends packets to the controller.
func spoofRules(d openflow.DatapathID, given []netip.Prefix, how spoofMode) rule.Program {
	var p rule.Program
	for _, prefix := range given {
		fields := []openflow.OXM{openflow.EthType(packet.TypeIPv4), openflow.IPSrcPrefix(prefix)}
		r := network.Rule{Switch: d, Stage: network.StageGuard, Offset: rule.GuardSource, Match: openflow.MustMatch(fields...)}
		if how != spoofDrop {
			r.Meter, r.Actions = spoofMeter, []openflow.Action{openflow.OutputController(wholePacket)}
		}
		p.Rules = append(p.Rules, r)
		if how == spoofToController {
			r.Offset, r.Match = r.Offset+1, openflow.MustMatch(append(fields, openflow.IPECN(0))...)
			p.Rules = append(p.Rules, r)
		}
	}
	if how != spoofDrop && len(p.Rules) > 0 {
		p.Meters = []network.Meter{{
			Switch: d, ID: spoofMeter, Flags: openflow.MeterFlagPktps | openflow.MeterFlagBurst,
			Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: spoofRate, Burst: spoofRate}},
		}}
	}
	return p
}

// isSpoofed reports whether a packet that one of the service's rules sent to the controller was sent
// by a spoof rule. The service's other rules send only DHCP and ARP.
func (s *guards) isSpoofed(h *packet.Headers) bool {
	asks := h.Has(packet.UDP) && h.SrcPort == dhcpClientPort && h.DstPort == dhcpServerPort
	return h.Has(packet.IPv4) && !asks && !isServerMessage(h)
}

// handleSpoofed handles a packet that a spoof rule sent to the controller. If the device has a
// rule at the port, the switch used an outdated decision, and the packet is sent through the
// tables again. Otherwise it is dropped.
func (s *guards) handleSpoofed(at network.PortRef, src netip.Addr, resubmit func() error) network.Verdict {
	if s.acceptsFrom(at, src) && resubmit() == nil {
		s.metrics.resubmitted.Inc()
		return network.Stop
	}
	s.metrics.dropped.WithLabelValues("address").Inc()
	return network.Stop
}

// acceptsFrom reports whether the rules of the device with the address ip accept its packets at a
// port. It includes rules that are being written.
func (s *guards) acceptsFrom(at network.PortRef, ip netip.Addr) bool {
	d, known := s.registry.DeviceByIP(ip)
	if !known {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.placement.mobiles[d.ID]
	return m != nil && (acceptedBy(m.rules, at) || acceptedBy(m.writing, at))
}

// acceptedBy reports whether one of a device's rules accepts its packets from a port.
func acceptedBy(rules []network.Rule, at network.PortRef) bool {
	for i := range rules {
		r := &rules[i]
		if r.Switch != at.Switch || r.Stage != network.StageDevice || r.Offset != rule.DeviceUp {
			continue
		}
		for o := range r.Match.Fields() {
			if o.Field == openflow.FieldInPort && uint32(o.Uint()) == at.Port {
				return true
			}
		}
	}
	return false
}

// strangerRate is the number of DHCP messages per second that strangers at one edge port may send, and
// strangerBurst the number that they may send at once. A stranger is a device that is not declared and
// holds no lease. The work queue bounds the messages of other devices.
const (
	strangerRate  = 20
	strangerBurst = 100
)

// floods limits the DHCP messages of strangers, with one limiter for each port. A flood from one port
// does not affect others.
type floods struct {
	mu    sync.Mutex
	ports map[network.PortRef]*portFlood
}

// portFlood limits the DHCP messages of strangers at one port.
type portFlood struct {
	limiter *rate.Limiter
	dropped int // messages dropped since the limiter was last full
}

// newFloods returns floods without any port.
func newFloods() *floods { return &floods{ports: map[network.PortRef]*portFlood{}} }

// allow reports whether a stranger's message at a port is handled. first is set for the first
// dropped message of a flood.
func (f *floods) allow(at network.PortRef, now time.Time) (ok, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.ports[at]
	if a == nil {
		a = &portFlood{limiter: rate.NewLimiter(strangerRate, strangerBurst)}
		f.ports[at] = a
	}
	if a.limiter.AllowN(now, 1) {
		return true, false
	}
	a.dropped++
	return false, a.dropped == 1
}

// expire removes the ports whose limiters are full again, and returns how many messages were
// dropped at those that had a flood.
func (f *floods) expire(now time.Time) map[network.PortRef]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := map[network.PortRef]int{}
	for at, a := range f.ports {
		if a.limiter.TokensAt(now) < strangerBurst {
			continue
		}
		if a.dropped > 0 {
			ended[at] = a.dropped
		}
		delete(f.ports, at)
	}
	return ended
}

// flooding reports whether a stranger's message is dropped because too many come from its port. For
// other devices it returns false.
func (s *guards) flooding(d registry.Device, at network.PortRef, arrived time.Time) bool {
	if l, ok := s.registry.Lease(d.ID); d.ID != "" && !d.Learned || ok && l.Active(s.now()) {
		return false
	}
	ok, first := s.floods.allow(at, arrived)
	if ok {
		return false
	}
	s.metrics.dropped.WithLabelValues("port").Inc()
	if first {
		s.log.Warn("DHCP of unknown devices floods a port; what is too much is dropped", "port", at, "a_second", strangerRate)
		s.publish("flood.started", map[string]any{"port": at.String(), "messages_per_second": strangerRate})
	}
	return true
}

// expireFloods reports floods that have ended.
func (s *guards) expireFloods() {
	for at, dropped := range s.floods.expire(s.now()) {
		s.log.Info("DHCP no longer floods a port", "port", at, "dropped", dropped)
		s.publish("flood.ended", map[string]any{"port": at.String(), "dropped": dropped})
	}
}

// silenceTime is how long a switch drops a port's violating packets before the controller checks the
// port again. It is also how long a port must be quiet before the end of its violation is reported.
const silenceTime = 10 * time.Second

// violation is a kind of packet that no host at an edge port may send, unless the port is a border
// port. The controller drops such packets, and makes the switch drop further ones for a while.
type violation struct {
	// key begins the ledger keys of the rules.
	key string
	// event is the prefix of the kinds of events. The event with the suffix .started is published
	// once for a port, and the one with .ended when the port has been quiet for long enough.
	event string
	// begins and ends are the log messages for these two events. does is the text by which the status
	// describes the violation; the source address follows it.
	begins, ends, does string
	// rules returns the rules that drop such packets from a port for silenceTime.
	rules func(*view, network.PortRef) []network.Rule
	// dropped counts the packets, by who dropped them.
	dropped *prometheus.CounterVec

	mu sync.Mutex
	// ports has one entry for each port, however many hosts and addresses a host there invents.
	ports map[network.PortRef]*violator
}

// violator records the packets of one violation that came from one port.
type violator struct {
	mac     openflow.MAC // sender of the first packet
	what    string       // source address of the first packet
	last    time.Time
	dropped uint64
	silent  bool // the switch drops further packets, or is about to
	rules   int  // number of dropping rules; a switch reports each when its time is over
}

// record counts a packet. first is set for the first packet of the port. silence is set if the caller
// has to make the switch drop further ones.
func (o *violation) record(at network.PortRef, h *packet.Headers, now time.Time) (first, silence bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.ports[at]
	if first = p == nil; first {
		p = &violator{mac: h.EthSrc, what: h.Src.String()}
		o.ports[at] = p
	}
	silence = !p.silent
	p.silent, p.last = true, now
	p.dropped++
	return first, silence
}

// setRules sets the number of rules that drop further packets from a port.
func (o *violation) setRules(at network.PortRef, rules int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.ports[at]; p != nil {
		p.rules = rules
	}
}

// removed records that a switch has removed one rule, which has dropped the given number of
// packets.
func (o *violation) removed(at network.PortRef, packets uint64, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.ports[at]
	if p == nil {
		return
	}
	p.rules--
	p.silent = p.silent && p.rules > 0
	if p.dropped += packets; packets > 0 {
		p.last = now
	}
}

// unsilence records that the switch does not drop a port's packets, because its rules could not be
// written.
func (o *violation) unsilence(at network.PortRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.ports[at]; p != nil {
		p.silent = false
	}
}

// expire removes the ports that have been quiet for long enough, and returns how many packets of
// each were dropped.
func (o *violation) expire(now time.Time) map[network.PortRef]uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	ended := map[network.PortRef]uint64{}
	for at, p := range o.ports {
		quiet := now.Sub(p.last)
		if !p.silent && quiet >= silenceTime || quiet >= 3*silenceTime { // a switch that has disconnected does not report the end of its rules
			ended[at] = p.dropped
			delete(o.ports, at)
		}
	}
	return ended
}

// errors returns a line for each port that violates now.
func (o *violation) errors() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for at, p := range o.ports {
		out = append(out, "port "+at.String()+": a host there, "+p.mac.String()+", "+o.does+" "+p.what+": it is dropped")
	}
	return out
}

// dropViolation drops a packet that is a violation, and makes the switch drop further ones.
func (s *guards) dropViolation(o *violation, at network.PortRef, h *packet.Headers, arrived time.Time) network.Verdict {
	o.dropped.WithLabelValues("controller").Inc()
	first, silence := o.record(at, h, arrived)
	if first {
		attrs := map[string]any{"port": at.String(), "mac": h.EthSrc, "claims": h.Src}
		args := []any{"port", at, "mac", h.EthSrc, "claims", h.Src}
		if h.Has(packet.ARP) {
			attrs["to_be_at"] = h.ARPSHA
			args = append(args, "to_be_at", h.ARPSHA)
		}
		s.log.Warn(o.begins, args...)
		s.publish(o.event+".started", attrs)
	}
	if silence && !s.start(func(ctx context.Context) { s.installSilence(ctx, o, at) }) {
		o.unsilence(at)
	}
	return network.Stop
}

// installSilence writes the rules by which a switch drops a port's violating packets for silenceTime.
func (s *guards) installSilence(ctx context.Context, o *violation, at network.PortRef) {
	v := s.view.Load()
	if v == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	p := rule.Program{Rules: o.rules(v, at)}
	for i := range p.Rules {
		r := &p.Rules[i]
		r.Switch, r.Stage, r.Offset, r.Hard, r.NotifyRemoved = at.Switch, network.StageAdmit, rule.AdmitSilence, silenceTime, true
	}
	o.setRules(at, len(p.Rules))
	if err := s.rules.Apply(ctx, o.key+at.String(), p, rule.ApplyOptions{}); err != nil {
		o.unsilence(at)
		s.log.Warn("a switch does not drop what must not come from a port; the controller does", "port", at, "offence", o.event, "error", err)
	}
}

// removed handles a rule that a switch has removed when its time was over.
func (s *guards) removed(r network.Removed) {
	for _, o := range s.violations() {
		name, ok := strings.CutPrefix(r.Name, o.key)
		at, err := ParsePort(name)
		if !ok || err != nil {
			continue
		}
		o.dropped.WithLabelValues("switch").Add(float64(r.Packets))
		o.removed(at, r.Packets, s.now())
	}
}

// expireViolations reports the ports whose violation has ended.
func (s *guards) expireViolations() {
	for _, o := range s.violations() {
		for at, dropped := range o.expire(s.now()) {
			s.log.Info(o.ends, "port", at, "dropped", dropped)
			s.publish(o.event+".ended", map[string]any{"port": at.String(), "dropped": dropped})
		}
	}
}

// violations returns all kinds of violations.
func (s *guards) violations() []*violation { return []*violation{s.forgers, s.rogues} }

// keyRogue begins the ledger keys of the rules against other DHCP servers.
const keyRogue = "rogue/"

// newRogues returns the violation of ports where a host answers DHCP.
func newRogues() *violation {
	return &violation{
		key: keyRogue, event: "rogue-dhcp", ports: map[network.PortRef]*violator{},
		begins: "a host answers DHCP at a port where no server is; it is dropped", ends: "DHCP is no longer answered at a port where no server is", does: "answers DHCP as",
		rules: func(_ *view, at network.PortRef) []network.Rule {
			return []network.Rule{{Match: fromServers(openflow.InPort(at.Port))}}
		},
	}
}

// fromServers returns a match of DHCP messages from servers to clients, with the additional fields more.
func fromServers(more ...openflow.OXM) openflow.Match {
	return openflow.MustMatch(append(more, openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoUDP),
		openflow.UDPSrc(dhcpServerPort), openflow.UDPDst(dhcpClientPort))...)
}

// isServerMessage reports whether a packet is a DHCP message from a server to a client, or the first
// fragment of one. The match of fromServers leaves out fragments. Without the first fragment the others
// are useless.
func isServerMessage(h *packet.Headers) bool {
	return h.Has(packet.IPv4|packet.UDP) && h.SrcPort == dhcpServerPort && h.DstPort == dhcpClientPort
}

// handleServerMessage handles a DHCP server's message. It lets messages pass that come from a place
// where a server may be: behind a border port that is no peering, or at a port of role uplink.
func (s *guards) handleServerMessage(at network.PortRef, h *packet.Headers, arrived time.Time) network.Verdict {
	v := s.view.Load()
	if v == nil || len(v.borders) == 0 || h.VLANID != 0 || h.VLANTags > 1 || !s.net.Topology().IsEdge(at) {
		return network.Continue
	}
	if border, ok := v.borders[at]; ok && border.Peer == "" || s.net.PortRole(at) == network.PortUplink {
		return network.Continue
	}
	return s.dropViolation(s.rogues, at, h, arrived)
}

// keyForged begins the ledger keys of the rules against forged ARP.
const keyForged = "forged/"

// newForgers returns the violation of ports that send forged ARP.
func newForgers() *violation {
	return &violation{
		key: keyForged, event: "forged-arp", ports: map[network.PortRef]*violator{}, rules: forgedRules,
		begins: "ARP is forged at a port; it is dropped", ends: "ARP is no longer forged at a port", does: "forges ARP about",
	}
}

// isForged reports whether an ARP packet from an edge port that is no border port claims an
// address that its sender does not have: a gateway's, the DHCP server's, or another device's.
// Hosts believe requests as they believe replies, so both are checked.
func (s *guards) isForged(v *view, h *packet.Headers) bool {
	if slices.Contains(v.own, h.Src) {
		return true
	}
	d, ok := s.leaseHolder(h.Src)
	return ok && !(d.Has(h.EthSrc) && d.Has(h.ARPSHA))
}

// forgedRules returns the rules that drop forged ARP from a port. Requests with a device's address
// are not dropped: the controller tells forged ones from the device's own.
func forgedRules(v *view, at network.PortRef) []network.Rule {
	in := openflow.InPort(at.Port)
	matches := v.arp(openflow.ARPSPA, openflow.ARPOp(packet.ARPReply), in)
	for _, ip := range v.own {
		matches = append(matches, openflow.MustMatch(openflow.EthType(packet.TypeARP), openflow.ARPOp(packet.ARPRequest), openflow.ARPSPA(ip), in))
	}
	rules := make([]network.Rule, len(matches))
	for i, m := range matches {
		rules[i].Match = m
	}
	return rules
}
