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
	// examineTimeout bounds the examination of all links. Links that it does not reach are
	// reported.
	examineTimeout = 5 * time.Minute
	// maxConcurrentLinks is the number of links that are examined at once: switches that send
	// packets to the controller by their processor are easily overloaded.
	maxConcurrentLinks = 2
	// probePause is the time between two frames of one direction, and probeTimeout how long the
	// frames of a round are awaited after the last was sent.
	probePause   = 10 * time.Millisecond
	probeTimeout = 500 * time.Millisecond
)

// undirectedLink is a link between two switches. One of its directions may be unknown.
type undirectedLink struct {
	a, b    PortRef
	latency time.Duration // the longer of both directions
}

// undirectedLinks returns each link once.
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

// examine looks for faults of all links and adds them to the report.
func (d *Doctor) examine(ctx context.Context, r *diagnosis.Report) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	var mu sync.Mutex
	visited := map[openflow.DatapathID]bool{} // switches whose rewriting was examined
	firstVisit := func(d openflow.DatapathID) bool {
		mu.Lock()
		defer mu.Unlock()
		before := visited[d]
		visited[d] = true
		return !before
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
				if len(found) > 0 || frames+rewriteFrames > 2*linkprobe.MaxFrames || !firstVisit(end[0].Switch) {
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
	_ = group.Wait() // no function of the group returns an error
}

// examineLink sends the frames of both directions and returns the link's faults.
func (d *Doctor) examineLink(ctx context.Context, k undirectedLink, mtu int) (found []diagnosis.Finding, frames int) {
	forward, backward := linkprobe.NewDirection(k.a, k.b, mtu), linkprobe.NewDirection(k.b, k.a, mtu)
	found = d.askForProbes(ctx, forward, backward)
	before := d.countPorts(ctx, k.a, k.b)
	var both sync.WaitGroup
	for _, w := range []*linkprobe.Direction{forward, backward} {
		x := d.probes.watch(w.MAC, func(at PortRef, frame []byte, _ time.Time) { w.Receive(at, frame) }, w.Waiting)
		both.Go(func() {
			d.send(ctx, x, w, probeTimeout+2*k.latency)
			d.probes.unwatch(x)
		})
	}
	both.Wait()
	d.count(ctx, before, forward, backward)
	d.forgetProbes(ctx, k)
	frames = forward.Sent() + backward.Sent()
	if why := d.unexamined(ctx, k); why != "" {
		return []diagnosis.Finding{{
			Fault: diagnosis.Unexamined, Level: diagnosis.Warn, From: k.a, To: k.b, Found: "the link could not be examined: " + why,
			Remedy: "see to it that switches and ports are up, and examine again",
		}}, frames
	}
	return append(found, linkprobe.Judge(forward, backward)...), frames
}

// unexamined returns why the results for a link are invalid, or an empty string.
func (d *Doctor) unexamined(ctx context.Context, k undirectedLink) string {
	if ctx.Err() != nil {
		return "the time for all links had passed"
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

// probesKey returns the key of the rule that sends a link's probes to the controller.
func probesKey(k PortRef) string { return "linkprobe/" + k.String() }

// probesOf returns the match for the frames of one direction at the port where they arrive.
func probesOf(w *linkprobe.Direction) openflow.Match {
	return openflow.MustMatch(openflow.InPort(w.To.Port), openflow.EthSrc(w.MAC))
}

// askForProbes writes a rule to the switch at each end of a link, which sends the probes from the
// other end to the controller and precedes all other rules. A switch that refuses the rule may send
// them to the controller nevertheless, because no other rule matches them.
func (d *Doctor) askForProbes(ctx context.Context, ways ...*linkprobe.Direction) (found []diagnosis.Finding) {
	up := []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)}
	for _, w := range ways {
		err := d.core.Apply(ctx, probesKey(w.To), Program{Rules: []Rule{{
			Switch: w.To.Switch, Stage: StageAdmit, Offset: rule.AdmitExamine, Actions: up,
			Match: probesOf(w),
		}}}, ApplyOptions{})
		if err != nil && ctx.Err() == nil {
			found = append(found, diagnosis.Finding{
				Fault: diagnosis.RuleRefused, Level: diagnosis.Warn, From: w.To, Found: fmt.Sprintf("the rule that sends probes to the controller was refused: %v", err),
				Remedy: "see whether the switch's table for exact matches of the source address has room, or is switched off",
			})
		}
	}
	return found
}

// forgetProbes removes the rules that askForProbes has written, even after the examination's
// deadline.
func (d *Doctor) forgetProbes(ctx context.Context, k undirectedLink) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.RequestTimeout)
	defer cancel()
	for _, at := range []PortRef{k.a, k.b} {
		if err := d.core.Remove(ctx, probesKey(at)); err != nil {
			d.cfg.Log.Warn("removing the rule for a link's probes", "port", at, "error", err)
		}
	}
}

// send sends the frames of one direction, round after round, and waits for those of each round to
// arrive.
func (d *Doctor) send(ctx context.Context, x *probeStream, w *linkprobe.Direction, timeout time.Duration) {
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
