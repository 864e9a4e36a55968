package mobile

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
	"github.com/sluice-net/sluice/services/handover/mobile/probe"
)

// neighbourInterval is how often the daemon sets the gateway's MAC address in the kernel again: the
// kernel may have learned another one meanwhile.
const neighbourInterval = 10 * time.Second

// startProbe starts to probe the gateway by an interface that has a link.
func (d *Daemon) startProbe(i *iface) {
	router, ok := d.leaseholder.router()
	if !ok || d.cfg.Probe.Interval <= 0 || i.probing != nil || !i.link.Carrier {
		return
	}
	ctx, cancel := context.WithCancel(d.ctx)
	p := &probing{&task{cancel}, probe.New(probe.Config{
		MAC: i.mac(), Gateway: router, Interval: d.cfg.Probe.Interval, Window: d.cfg.Probe.Window,
	})}
	i.probing = p
	d.updateUse(i)
	index := i.link.Index
	d.wg.Go(func() {
		defer cancel()
		socket, err := d.openProbes(ctx, i.Name, index)
		if err != nil {
			return // ctx has ended
		}
		defer socket.Close()
		_ = p.Run(ctx, socket, func(s probe.Sample) { // until ctx ends
			d.inbox.post(ctx, func() {
				if i.probing == p {
					d.probed(i, s)
				}
			})
		})
	})
}

// openProbes opens the socket for probes, and retries until ctx ends.
func (d *Daemon) openProbes(ctx context.Context, name string, index int) (conn, error) {
	tick := time.NewTicker(d.cfg.Probe.Interval)
	defer tick.Stop()
	for told := false; ; told = true {
		socket, err := d.sys.probes(index)
		if err == nil {
			return socket, nil
		}
		if !told {
			d.log.Warn("the gateway cannot be probed yet", "interface", name, "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// updateUse tells the prober of an interface how the interface is used.
func (d *Daemon) updateUse(i *iface) {
	switch {
	case i.probing == nil:
	case i == d.active && i.joined && d.leaseholder.lease != nil:
		name := i.Name
		i.probing.SetUse(probe.Use{From: d.leaseholder.lease.Address.Addr(), Traffic: func() (datapath.Traffic, error) { return d.path.Traffic(name) }})
	default:
		i.probing.SetUse(probe.Use{})
	}
}

// restartProbes starts to probe the gateway of a new lease.
func (d *Daemon) restartProbes() {
	for _, i := range d.interfaces {
		i.stopProbe()
		d.startProbe(i)
	}
}

// stopProbe stops probing and forgets the results.
func (i *iface) stopProbe() {
	if i.probing != nil {
		i.probing.task.cancel()
		i.probing = nil
	}
	i.sample = probe.Sample{}
}

// probed handles a result of probing.
func (d *Daemon) probed(i *iface, s probe.Sample) {
	old := i.sample
	i.sample = s
	if s.Error != "" && s.Error != old.Error {
		d.log.Warn("a probe of the gateway could not be sent, or its answer not received", "interface", i.Name, "error", s.Error)
	}
	if i.backoff.silent && s.Answered.After(i.backoff.since.Add(backoffAnswered)) {
		i.failures, i.backoff = 0, backoff{}
	}
	if s.Silent != old.Silent {
		d.log.Info("interface", "interface", i.Name, "silent", s.Silent)
	}
	if i == d.active && s.Gateway != (openflow.MAC{}) && (s.Gateway != old.Gateway || time.Since(d.neighbourSet) > neighbourInterval) {
		d.neighbourSet = time.Now()
		d.leaseholder.setNeighbour(s.Gateway)
	}
	if i == d.active && (!s.Since.IsZero() && s.Since != old.Since || s.Error != "" && s.Error != old.Error) {
		d.checkSilence(i)
	}
	d.decide()
}

// checkSilence finds out, when the interface in use starts to be silent, whether it still has its
// link, and whether the others are silent, too.
func (d *Daemon) checkSilence(active *iface) {
	d.pollLink(active)
	d.probeOthers(active)
}

// probeOthers probes the interfaces that are not in use.
func (d *Daemon) probeOthers(active *iface) {
	for _, i := range d.interfaces {
		if i != active && i.probing != nil {
			i.probing.Ask()
		}
	}
}

// answers reports whether a probe by an interface was answered since the one in use has fallen
// silent.
func (d *Daemon) answers(i *iface) bool {
	return !i.sample.Silent && !i.sample.Answered.IsZero() && (d.active == nil || i.sample.Answered.After(d.active.sample.Since))
}

// startSilentBackoff starts a back-off from an interface that was left because it was silent: its edge
// may answer again at once although packets get no further.
func (i *iface) startSilentBackoff() {
	now := time.Now()
	if now.Sub(i.wentSilent) > 2*backoffMax {
		i.silences = 0
	}
	i.backoff = backoff{
		why: "it was silent", since: now, until: now.Add(min(backoffMin<<min(i.silences, 10), backoffMax)),
		lastResort: now.Add(backoffMin), silent: true,
	}
	i.wentSilent = now
	i.silences++
}

// retransmitWithin is how recently a connection must have sent for it to have lost packets on a
// dead interface.
const retransmitWithin = time.Second

// retransmit lets TCP continue at once after a radio has died: a sender that has sent everything
// would wait for its own timeout, at least 200 ms on Linux. A connection's last segment shows the
// peer which earlier segments are missing, as TCP's tail loss probe would (RFC 8985, section 7). Its
// last acknowledgment lets the peer send on, which in turn shows us what we have missed.
func (d *Daemon) retransmit(target *iface) {
	n, err := d.path.SendAgain(retransmitWithin, target.sample.Gateway)
	if err != nil {
		d.log.Warn("the last segments of connections could not be sent again", "interface", target.Name, "error", err)
	}
	d.log.Debug("sent again", "interface", target.Name, "segments", n)
}
