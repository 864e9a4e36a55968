package network

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// examineTimeout bounds the examination of all links. Those that it does not come to
	// are told of.
	examineTimeout = 5 * time.Minute
	// maxConcurrentLinks is how many links are examined at once: switches that hand packets in
	// by their processor are easily asked too much.
	maxConcurrentLinks = 2
	// probePause is between two frames of a way, and probePatience how long after a
	// round's last frame they are waited for.
	probePause   = 10 * time.Millisecond
	probeTimeout = 500 * time.Millisecond
)

// undirectedLink is a link between two switches, of which one direction may be unknown.
type undirectedLink struct {
	a, b    PortRef
	latency time.Duration // the longer one
}

// undirectedLinks lists links, each once.
func undirectedLinks(links []Link) []undirectedLink {
	var out []undirectedLink
	for _, l := range links {
		k := undirectedLink{l.From, l.To, l.Latency}
		if k.b.Compare(k.a) < 0 {
			k.a, k.b = k.b, k.a
		}
		if i := slices.IndexFunc(out, func(o undirectedLink) bool { return o.a == k.a && o.b == k.b }); i >= 0 {
			out[i].latency = max(out[i].latency, k.latency)
			continue
		}
		out = append(out, k)
	}
	return out
}

// examine looks for the faults of all links and adds them to a report.
func (d *Doctor) examine(ctx context.Context, r *diagnosis.Report) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	var mu sync.Mutex
	rewrites := map[openflow.DatapathID]bool{} // switches that have been looked at
	mine := func(d openflow.DatapathID) bool {
		mu.Lock()
		defer mu.Unlock()
		was := rewrites[d]
		rewrites[d] = true
		return !was
	}
	var group errgroup.Group
	group.SetLimit(maxConcurrentLinks)
	gone, silent := d.lostLinks.classify(d.switches.reachable, time.Now())
	for _, g := range gone {
		r.Findings = append(r.Findings, d.goneLinkFinding(g))
	}
	for _, k := range undirectedLinks(slices.Concat(d.snapshots.topo.Load().Links, silent)) {
		group.Go(func() error {
			found, frames := d.examineLink(ctx, k, r.MTU)
			for _, end := range [][2]PortRef{{k.a, k.b}, {k.b, k.a}} {
				if len(found) > 0 || frames+rewriteFrames > 2*linkprobe.MaxFrames || !mine(end[0].Switch) {
					continue
				}
				more, burst := d.examineRewriting(ctx, end[0], end[1], probeTimeout+2*k.latency)
				found, frames = append(found, more...), frames+burst
			}
			mu.Lock()
			defer mu.Unlock()
			r.Findings = append(r.Findings, found...)
			r.Links, r.Frames, r.MostFrames = r.Links+1, r.Frames+frames, max(r.MostFrames, frames)
			return nil
		})
	}
	_ = group.Wait() // nothing returns an error
}

// examineLink sends both ways' frames and says what is wrong with the link.
func (d *Doctor) examineLink(ctx context.Context, k undirectedLink, mtu int) (found []diagnosis.Finding, frames int) {
	there, back := linkprobe.NewWay(k.a, k.b, mtu), linkprobe.NewWay(k.b, k.a, mtu)
	found = d.askForProbes(ctx, there, back)
	before := d.countPorts(ctx, k.a, k.b)
	var both sync.WaitGroup
	for _, w := range []*linkprobe.Way{there, back} {
		x := d.probes.watch(w.MAC, func(at PortRef, frame []byte, _ time.Time) { w.Receive(at, frame) }, w.Waiting)
		both.Go(func() {
			d.send(ctx, x, w, probeTimeout+2*k.latency)
			d.probes.unwatch(x)
		})
	}
	both.Wait()
	d.count(ctx, before, there, back)
	d.forgetProbes(ctx, k)
	frames = there.Sent() + back.Sent()
	if why := d.unexamined(ctx, k); why != "" {
		return []diagnosis.Finding{{
			Fault: diagnosis.Unexamined, Level: diagnosis.Warn, From: k.a, To: k.b, Found: "the link could not be examined: " + why,
			Remedy: "see to it that switches and ports are up, and examine again",
		}}, frames
	}
	return append(found, linkprobe.Judge(there, back)...), frames
}

// unexamined says why what has been found of a link is worth nothing; empty if it is.
func (d *Doctor) unexamined(ctx context.Context, k undirectedLink) string {
	if ctx.Err() != nil {
		return "the time for all links was over"
	}
	for _, at := range []PortRef{k.a, k.b} {
		s, ok := d.switches.get(at.Switch)
		if !ok {
			return fmt.Sprintf("switch %v left", at.Switch)
		}
		if p, ok := s.Port(at.Port); !ok || !p.Up() {
			return fmt.Sprintf("port %v went down", at)
		}
	}
	return ""
}

// probesKey is the key of the rules by which a link's probes come up.
func probesKey(k PortRef) string { return "linkprobe/" + k.String() }

// probesOf matches a way's frames where they come in.
func probesOf(w *linkprobe.Way) openflow.Match {
	return openflow.MustMatch(openflow.InPort(w.To.Port), openflow.EthSrc(w.MAC))
}

// askForProbes has both ends hand in what the other one sends, before any other rule.
// A switch that refuses may still hand it in for want of a rule.
func (d *Doctor) askForProbes(ctx context.Context, ways ...*linkprobe.Way) (found []diagnosis.Finding) {
	up := []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)}
	for _, w := range ways {
		err := d.core.Apply(ctx, probesKey(w.To), Program{Rules: []Rule{{
			Switch: w.To.Switch, Stage: StageAdmit, Offset: rule.AdmitExamine, Actions: up,
			Match: probesOf(w),
		}}}, ApplyOptions{})
		if err != nil && ctx.Err() == nil {
			found = append(found, diagnosis.Finding{
				Fault: diagnosis.RuleRefused, Level: diagnosis.Warn, From: w.To, Found: fmt.Sprintf("the rule by which probes come up was not taken: %v", err),
				Remedy: "see whether the switch's table for exact matches of the source address has room, or is switched off",
			})
		}
	}
	return found
}

// forgetProbes takes the rules away again, also when the examination's time is over.
func (d *Doctor) forgetProbes(ctx context.Context, k undirectedLink) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.RequestTimeout)
	defer cancel()
	for _, at := range []PortRef{k.a, k.b} {
		if err := d.core.Remove(ctx, probesKey(at)); err != nil {
			d.cfg.Log.Warn("removing the rule for a link's probes", "port", at, "error", err)
		}
	}
}

// send sends a way's frames, round after round, and waits for each round's to arrive.
func (d *Doctor) send(ctx context.Context, x *probeStream, w *linkprobe.Way, timeout time.Duration) {
	for {
		var frames [][]byte
		x.locked(func() { frames = w.Next() })
		if len(frames) == 0 {
			return
		}
		for _, f := range frames {
			s, ok := d.switches.get(w.From.Switch)
			if !ok || tasks.Sleep(ctx, probePause) != nil {
				return
			}
			if err := s.PacketOut(openflow.PortController, d.queues.output(w.From), f); err != nil {
				s.logLimiter.Warn(d.cfg.Log, "probing a link", "port", w.From, "error", err)
			}
		}
		x.await(ctx, timeout)
	}
}
