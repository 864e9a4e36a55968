package handover

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// silenceTime is how long a switch drops what a port sends before the controller checks again, and
// how long a port has been quiet when its end is reported.
const silenceTime = 10 * time.Second

// violation is a kind of packet that no host at an edge port may send, unless the port is a border
// port. The controller drops such packets, and makes the switch drop further ones for a while.
type violation struct {
	// key begins the ledger keys of the rules.
	key string
	// event is the kind of the events: event.started is published once for a port, event.ended at
	// the end.
	event string
	// begins and ends are the same in the log, does what the status says of a host.
	// begins and ends are the log messages for the same; does describes in the status what a host
	// does.
	begins, ends, does string
	// rules returns the rules that drop what a port sends, for silenceTime.
	rules func(*view, network.PortRef) []network.Rule
	// dropped counts the packets, by who dropped them.
	dropped *prometheus.CounterVec

	mu sync.Mutex
	// ports has one entry for each port, however many hosts and addresses a host there invents.
	ports map[network.PortRef]*violator
}

// violator records what has come from a port.
type violator struct {
	mac     openflow.MAC // sender of the first packet
	what    string       // source address of the first packet
	last    time.Time
	dropped uint64
	silent  bool // the switch drops further packets, or is about to
	rules   int  // number of dropping rules; a switch reports each when its time is over
}

// record counts a packet. first is set for the first packet of the port, silence if the switch
// should drop further ones.
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

// setRules sets how many rules drop further packets.
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
		if !p.silent && quiet >= silenceTime || quiet >= 3*silenceTime { // a switch that is gone reports nothing
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

// installSilence writes the rules by which a switch drops, for a while, what a port sends in
// violation.
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
