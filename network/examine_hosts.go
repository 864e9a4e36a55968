package network

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// maxConcurrentHosts is the number of addresses needed by services that are probed at once.
	maxConcurrentHosts = 16
	// maxQuestions is the number of probes for each address: the first half at the known place of
	// its host, the rest at all edge ports.
	maxQuestions = 6
)

// ExamineAddresses makes examinations probe the addresses that a service needs. list returns these
// addresses, and is called from another goroutine. ExamineAddresses must not be called after Run.
func (d *Doctor) ExamineAddresses(list func() []diagnosis.Needed) {
	if d.running.Load() {
		panic("network: ExamineAddresses after Run")
	}
	d.needed = append(d.needed, list)
}

// examineHosts looks for faults of hosts' places, and for hosts that services need and that do not
// answer, and adds them to the report.
func (d *Doctor) examineHosts(ctx context.Context, r *diagnosis.Report) {
	r.Findings = append(r.Findings, diagnosis.Addresses(d.hosts.All())...)
	r.Findings = append(r.Findings, diagnosis.Moving(d.hosts.Flapping(diagnosis.FlappingTimes, time.Now()))...)
	r.Findings = append(r.Findings, diagnosis.Loops(d.snapshots.links.Loops(), LoopReason)...)
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []diagnosis.Needed
	for _, list := range d.needed {
		all = append(all, list()...)
	}
	tasks.Each(all, maxConcurrentHosts, func(need diagnosis.Needed) {
		h, known, answers := d.askHost(ctx, need.Addr.Unmap())
		mu.Lock()
		defer mu.Unlock()
		if need.Drift != "" {
			r.Findings = append(r.Findings, diagnosis.HostDrift(need, h, known))
		}
		if answers || ctx.Err() != nil {
			return
		}
		r.Findings = append(r.Findings, diagnosis.Unanswered(need, h, known))
	})
}

// askHost probes an address. It returns the address's host, whether that host is known, and
// whether any host answers.
func (d *Doctor) askHost(ctx context.Context, a netip.Addr) (h Host, known, ok bool) {
	if h, known = d.hosts.ByIP(a); !known {
		h, err := d.resolver.resolve(ctx, a)
		return h, false, err == nil
	}
	answer := d.probes.awaitAnswer(a)
	defer d.probes.cancelAnswer(a, answer)
	again := time.NewTicker(resolveInterval)
	defer again.Stop()
	for i := range maxQuestions {
		if i < maxQuestions/2 {
			d.hostProber.probe(h, a)
		} else {
			d.hostProber.probeAllPorts(a)
		}
		select {
		case <-answer.done:
			return h, true, true
		case <-again.C:
		case <-ctx.Done():
			return h, true, false
		}
	}
	return h, true, false
}

// hostAnswer holds the answer of the host that is probed for an address, once it has arrived.
type hostAnswer struct {
	done    chan struct{} // closed when mac is set
	mac     openflow.MAC
	waiters int
}

// awaitAnswer begins to wait for the next answer of a host for the address. The result's channel done
// is closed when the answer has arrived. The caller ends the wait with cancelAnswer.
func (e *probeReceiver) awaitAnswer(a netip.Addr) *hostAnswer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers == nil {
		e.answers = map[netip.Addr]*hostAnswer{}
	}
	if e.answers[a] == nil {
		e.answers[a] = &hostAnswer{done: make(chan struct{})}
	}
	e.answers[a].waiters++
	return e.answers[a]
}

// cancelAnswer ends a wait that awaitAnswer began.
func (e *probeReceiver) cancelAnswer(a netip.Addr, answer *hostAnswer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if answer.waiters--; answer.waiters == 0 && e.answers[a] == answer {
		delete(e.answers, a)
	}
}

// receiveAnswer handles a host's packet to the controller. It runs on the switch's goroutine.
func (e *probeReceiver) receiveAnswer(h *packet.Headers) {
	a := h.Src
	if h.Has(packet.ND) {
		a = h.NDTarget
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if answer := e.answers[a]; answer != nil {
		answer.mac = h.EthSrc
		close(answer.done)
		delete(e.answers, a)
	}
}
