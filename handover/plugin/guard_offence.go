package plugin

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

// silence is for how long a switch drops what a port sends before the controller
// looks again, and how long a port has been quiet when that is told.
const silence = 10 * time.Second

// offence is something that nobody at an edge port which is no border port has a right to
// send. The controller drops it, and has the switch drop for a while what follows.
type offence struct {
	// key begins the keys of its rules in the ledger.
	key string
	// event is the kind of the event that tells of a port, once; with "-over", of that
	// which tells of its end.
	event string
	// begins and ends are the same in the log, does what the status says of a host.
	begins, ends, does string
	// rules drop what a port sends, for as long as silence.
	rules func(*view, network.PortRef) []network.Rule
	// dropped counts the packets, by who dropped them.
	dropped *prometheus.CounterVec

	mu sync.Mutex
	// ports has one entry for each port, however many hosts and addresses somebody
	// there makes up.
	ports map[network.PortRef]*offender
}

// offender is what has come from a port.
type offender struct {
	mac     openflow.MAC // that has sent the first
	what    string       // the first was about
	last    time.Time
	dropped uint64
	silent  bool // the switch drops what follows, or is about to
	rules   int  // by so many rules, of which each tells of itself when its time is over
}

// caught takes note of a packet. first says that it is the first of the port, silence
// that its switch is to drop what follows.
func (o *offence) caught(at network.PortRef, h *packet.Headers, now time.Time) (first, silence bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.ports[at]
	if first = p == nil; first {
		p = &offender{mac: h.EthSrc, what: h.Src.String()}
		o.ports[at] = p
	}
	silence = !p.silent
	p.silent, p.last = true, now
	p.dropped++
	return first, silence
}

// silences takes note of how many rules are to drop what follows.
func (o *offence) silences(at network.PortRef, rules int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.ports[at]; p != nil {
		p.rules = rules
	}
}

// removed takes note that one rule drops nothing any more. packets are what it has dropped.
func (o *offence) removed(at network.PortRef, packets uint64, now time.Time) {
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

// speaks takes note that the switch drops nothing of a port, since it could not be told to.
func (o *offence) speaks(at network.PortRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.ports[at]; p != nil {
		p.silent = false
	}
}

// over forgets ports that have been quiet for long enough, and returns how much was
// dropped of each.
func (o *offence) over(now time.Time) map[network.PortRef]uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	ended := map[network.PortRef]uint64{}
	for at, p := range o.ports {
		quiet := now.Sub(p.last)
		if !p.silent && quiet >= silence || quiet >= 3*silence { // a switch that is gone does not tell
			ended[at] = p.dropped
			delete(o.ports, at)
		}
	}
	return ended
}

// errors says at which ports it happens now.
func (o *offence) errors() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for at, p := range o.ports {
		out = append(out, "port "+at.String()+": a host there, "+p.mac.String()+", "+o.does+" "+p.what+": it is dropped")
	}
	return out
}

// stop drops a packet that is an offence, and has the switch drop what follows it.
func (s *guards) stop(o *offence, at network.PortRef, h *packet.Headers, arrived time.Time) network.Verdict {
	o.dropped.WithLabelValues("controller").Inc()
	first, silence := o.caught(at, h, arrived)
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
	if silence && !s.start(func(ctx context.Context) { s.silence(ctx, o, at) }) {
		o.speaks(at)
	}
	return network.Stop
}

// silence has a switch drop, for a while, what a port sends of an offence.
func (s *guards) silence(ctx context.Context, o *offence, at network.PortRef) {
	v := s.view.Load()
	if v == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.RulesTimeout)
	defer cancel()
	p := rule.Program{Rules: o.rules(v, at)}
	for i := range p.Rules {
		r := &p.Rules[i]
		r.Switch, r.Stage, r.Offset, r.Hard, r.NotifyRemoved = at.Switch, network.StageAdmit, rule.AdmitSilence, silence, true
	}
	o.silences(at, len(p.Rules))
	if err := s.rules.Apply(ctx, o.key+at.String(), p, rule.ApplyOptions{}); err != nil {
		o.speaks(at)
		s.log.Warn("a switch does not drop what must not come from a port; the controller does", "port", at, "offence", o.event, "error", err)
	}
}

// Removed is told of a rule that a switch has removed when its time was over.
func (s *guards) Removed(r network.Removed) {
	for _, o := range s.offences() {
		name, is := strings.CutPrefix(r.Name, o.key)
		at, err := ParsePort(name)
		if !is || err != nil {
			continue
		}
		o.dropped.WithLabelValues("switch").Add(float64(r.Packets))
		o.removed(at, r.Packets, s.now())
	}
}

// offencesOver tells of ports from which an offence comes no longer.
func (s *guards) offencesOver() {
	for _, o := range s.offences() {
		for at, dropped := range o.over(s.now()) {
			s.log.Info(o.ends, "port", at, "dropped", dropped)
			s.publish(o.event+".ended", map[string]any{"port": at.String(), "dropped": dropped})
		}
	}
}

// offences lists those that are looked for.
func (s *guards) offences() []*offence { return []*offence{s.forgers, s.rogues} }
