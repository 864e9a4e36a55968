package network

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/linkprobe"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// rewriteFrames is the most frames that cross a link while a switch's rewriting is examined
	// over it: two pairs of bursts, each there and back.
	rewriteFrames = 2 * 2 * 2 * linkprobe.BurstSize
	// burstSettle is the time that switches have to activate the rules for a burst, which nothing
	// has matched before.
	burstSettle = 100 * time.Millisecond
)

// examineRewriting examines how the switch at one end of a sound link rewrites addresses. It
// returns a fault only if the fault occurs twice in a row, and the number of frames sent.
func (d *Doctor) examineRewriting(ctx context.Context, at, home PortRef, timeout time.Duration) (found []diagnosis.Finding, frames int) {
	s, ok := d.switches.get(at.Switch)
	rewriting := linkprobe.RewriteNothing
	if ok {
		rewriting = s.caps.rewriting()
	}
	if rewriting == linkprobe.RewriteNothing {
		return nil, 0
	}
	var first diagnosis.Finding
	for round := range 2 {
		plain, rewritten := linkprobe.NewBurst(home, at, linkprobe.RewriteNothing), linkprobe.NewBurst(home, at, rewriting)
		if err := d.bursts(ctx, timeout, plain, rewritten); err != nil {
			return nil, frames // the link's own probes report faults of switches and rules
		}
		frames += 2 * 2 * linkprobe.BurstSize
		f, faulty := linkprobe.JudgeRewriting(plain, rewritten)
		if !faulty || round > 0 && f.Fault != first.Fault {
			return nil, frames
		}
		first = f
	}
	return []diagnosis.Finding{first}, frames
}

// rewriting returns which of the addresses and ports that services rewrite the switch can rewrite.
func (c Capabilities) rewriting() linkprobe.Rewriting {
	can := func(all ...openflow.Field) bool {
		for _, f := range all {
			if !c.CanSet(f) {
				return false
			}
		}
		return true
	}
	switch {
	case can(openflow.FieldEthDst, openflow.FieldIPv4Src, openflow.FieldIPv4Dst, openflow.FieldTCPSrc, openflow.FieldTCPDst):
		return linkprobe.RewriteAll
	case can(openflow.FieldEthDst):
		return linkprobe.RewriteEthernet
	}
	return linkprobe.RewriteNothing
}

// bursts sends bursts to a switch and back. Their frames take turns, so that an unrelated delay
// affects all bursts alike.
func (d *Doctor) bursts(ctx context.Context, timeout time.Duration, all ...*linkprobe.Burst) error {
	at, home := all[0].At, all[0].Home
	key := "rewriteprobe/" + at.String()
	var p Program
	for _, b := range all {
		for _, r := range []Rule{
			{Switch: at.Switch, Match: b.Match(at.Port), Actions: b.Actions()},
			{Switch: home.Switch, Match: b.Match(home.Port), Actions: []openflow.Action{openflow.OutputController(openflow.MaxLenNoBuffer)}},
		} {
			r.Stage, r.Offset = StageAdmit, rule.AdmitExamine
			p.Rules = append(p.Rules, r)
		}
	}
	if err := d.core.Apply(ctx, key, p, ApplyOptions{}); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.RequestTimeout)
		defer cancel()
		if err := d.core.Remove(ctx, key); err != nil {
			d.cfg.Log.Warn("removing the rules for bursts", "switch", at.Switch, "error", err)
		}
	}()
	if err := tasks.Sleep(ctx, burstSettle); err != nil {
		return err
	}
	sent := make([]*probeStream, len(all))
	for i, b := range all {
		sent[i] = d.probes.watch(b.MAC, b.Receive, b.Waiting)
		defer d.probes.unwatch(sent[i])
	}
	s, err := d.switches.mustBeUp(home.Switch)
	if err != nil {
		return err
	}
	for i := range linkprobe.BurstSize {
		for k, b := range all {
			var frame []byte
			sent[k].locked(func() { frame = b.Send(i, time.Now()) })
			if err := s.PacketOut(openflow.PortController, d.queues.output(home), frame); err != nil {
				return err
			}
		}
	}
	for _, x := range sent {
		x.await(ctx, timeout)
	}
	return nil
}
