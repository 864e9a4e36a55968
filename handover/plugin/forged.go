package plugin

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// keyForged begins the keys of the rules against forged ARP in the ledger.
	keyForged = "forged/"
	// forgedOffset is the place, in the band of guards, of the rules by which ARP
	// replies about the networks of devices come to the controller, and silenceOffset,
	// above it, that of the rules that drop what a port forges.
	forgedOffset  = 100
	silenceOffset = 110
	// silence is for how long a switch drops what a port forges before the controller
	// looks again, and how long a port has been quiet when that is told.
	silence = 10 * time.Second
)

// forgers are the edge ports from which ARP is forged. There is one entry for each
// port, however many hosts and addresses somebody there makes up.
type forgers struct {
	mu    sync.Mutex
	ports map[network.PortRef]*forger
}

// forger is what has come from a port.
type forger struct {
	mac     openflow.MAC // that has sent the first
	ip      netip.Addr   // that it was about
	last    time.Time
	dropped uint64
	silent  bool // the switch drops what is forged, or is about to
}

func newForgers() *forgers { return &forgers{ports: map[network.PortRef]*forger{}} }

// caught takes note of a forged packet. first says that it is the first of the port,
// silence that its switch is to drop what follows.
func (f *forgers) caught(at network.PortRef, h *packet.Headers, now time.Time) (first, silence bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.ports[at]
	if first = p == nil; first {
		p = &forger{mac: h.EthSrc, ip: h.Src}
		f.ports[at] = p
	}
	silence = !p.silent
	p.silent, p.last = true, now
	p.dropped++
	return first, silence
}

// speaks takes note that a switch drops nothing of a port any more. packets are what
// it has dropped.
func (f *forgers) speaks(at network.PortRef, packets uint64, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.ports[at]
	if p == nil {
		return
	}
	p.silent = false
	if p.dropped += packets; packets > 0 {
		p.last = now
	}
}

// over forgets ports that have been quiet for long enough, and returns how much was
// dropped of each.
func (f *forgers) over(now time.Time) map[network.PortRef]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := map[network.PortRef]uint64{}
	for at, p := range f.ports {
		quiet := now.Sub(p.last)
		if !p.silent && quiet >= silence || quiet >= 3*silence { // a switch that is gone does not tell
			ended[at] = p.dropped
			delete(f.ports, at)
		}
	}
	return ended
}

// errors says which ports forge ARP now.
func (f *forgers) errors() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for at, p := range f.ports {
		out = append(out, "port "+at.String()+": a host there, "+p.mac.String()+", forges ARP about "+p.ip.String()+": it is dropped")
	}
	return out
}

// forged says whether an ARP packet from an edge port that is no root claims an
// address that is not its sender's: that of a gateway or of the DHCP server, or that
// of a device that the sender is not. Requests are believed as replies are.
func (s *Service) forged(v *view, h *packet.Headers) bool {
	if slices.Contains(v.own, h.Src) {
		return true
	}
	d, ok := s.leased(h.Src)
	return ok && !(d.Has(h.EthSrc) && d.Has(h.ARPSHA))
}

// caught drops a forged packet, and has the switch drop what follows it.
func (s *Service) caught(at network.PortRef, h *packet.Headers, arrived time.Time) network.Verdict {
	s.metrics.forged.WithLabelValues("controller").Inc()
	first, silence := s.forgers.caught(at, h, arrived)
	if first {
		s.log.Warn("ARP is forged at a port; it is dropped", "port", at, "mac", h.EthSrc, "claims", h.Src, "to_be_at", h.ARPSHA)
		s.publish("forged-arp", map[string]any{"port": at.String(), "mac": h.EthSrc, "claims": h.Src, "to_be_at": h.ARPSHA})
	}
	if silence && !s.start(func(ctx context.Context) { s.silence(ctx, at) }) {
		s.forgers.speaks(at, 0, arrived)
	}
	return network.Stop
}

// silence has a switch drop, for a while, what a port forges.
func (s *Service) silence(ctx context.Context, at network.PortRef) {
	v := s.view.Load()
	if v == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	if err := s.rules.Apply(ctx, keyForged+at.String(), rule.Program{Rules: silenced(v, at)}, rule.ApplyOptions{}); err != nil {
		s.forgers.speaks(at, 0, s.now())
		s.log.Warn("a switch does not drop forged ARP; the controller does", "port", at, "error", err)
	}
}

// silenced are the rules that drop what a port forges, but for requests in the name
// of devices, which the controller tells from those of the devices themselves.
func silenced(v *view, at network.PortRef) []network.Rule {
	in := openflow.InPort(at.Port)
	matches := v.arp(openflow.ARPSPA, openflow.ARPOp(packet.ARPReply), in)
	for _, ip := range v.own {
		matches = append(matches, openflow.MustMatch(openflow.EthType(packet.TypeARP), openflow.ARPOp(packet.ARPRequest), openflow.ARPSPA(ip), in))
	}
	rules := make([]network.Rule, len(matches))
	for i, m := range matches {
		rules[i] = network.Rule{
			Switch: at.Switch, Band: network.BandGuard, Offset: silenceOffset, Match: m, Hard: silence, NotifyRemoved: true,
		}
	}
	return rules
}

// Removed is told of a rule that a switch has removed when its time was over.
func (s *Service) Removed(r network.Removed) {
	at, err := ParsePort(strings.TrimPrefix(r.Name, keyForged))
	if err != nil {
		return
	}
	s.metrics.forged.WithLabelValues("switch").Add(float64(r.Packets))
	s.forgers.speaks(at, r.Packets, s.now())
}

// forgedOver tells of ports that forge ARP no longer.
func (s *Service) forgedOver() {
	for at, dropped := range s.forgers.over(s.now()) {
		s.log.Info("ARP is no longer forged at a port", "port", at, "dropped", dropped)
		s.publish("forged-arp-over", map[string]any{"port": at.String(), "dropped": dropped})
	}
}
