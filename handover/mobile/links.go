package mobile

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/handover/mobile/device"
	"github.com/sluice-net/sluice/handover/mobile/probe"
	"github.com/sluice-net/sluice/openflow"
)

// radioInterval is how often signals are read.
const radioInterval = time.Second

// pathTimeout bounds one change of the datapath.
const pathTimeout = 5 * time.Second

func (d *Daemon) pathContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.ctx, pathTimeout)
}

// linkChanged takes in the state of an interface.
func (d *Daemon) linkChanged(l device.Link) {
	i := d.find(l.Name)
	if i == nil {
		return
	}
	old := i.link
	i.link = l
	if i.attached && (!l.Present || l.Index != old.Index || l.MAC != old.MAC) {
		d.detach(i)
	}
	if l.Present && !i.attached {
		d.attach(i)
	}
	// A carrier that went and came between two looks is a new link, too.
	if !l.Carrier || l.Flaps != old.Flaps || l.Index != old.Index {
		d.linkLost(i)
	}
	if l.Carrier && (!old.Carrier || l.Flaps != old.Flaps || l.Index != old.Index) {
		i.failures, i.barredUntil = 0, time.Time{}
		d.startProbe(i)
	}
	if old.Carrier != l.Carrier || old.Present != l.Present {
		d.log.Info("interface changed", "interface", i.Name, "present", l.Present, "link", l.Carrier)
	}
	d.decide()
}

// linkLost forgets what was true of a link that is no more.
func (d *Daemon) linkLost(i *iface) {
	i.joined = false
	i.stopProbe()
	if d.attempt != nil && d.attempt.target == i {
		d.abandon(errLinkLost)
	}
}

// attach takes an interface over and gives it to the datapath.
func (d *Daemon) attach(i *iface) {
	ctx, cancel := d.pathContext()
	defer cancel()
	err := d.sys.adopt(i.Name)
	if err == nil {
		err = d.path.Attach(ctx, datapath.Interface{Name: i.Name, MAC: i.mac()})
	}
	if err != nil {
		d.bar(i, err)
		return
	}
	i.attached = true
}

// detach takes an interface from the datapath that is gone or another one now.
func (d *Daemon) detach(i *iface) {
	i.attached = false
	d.linkLost(i)
	ctx, cancel := d.pathContext()
	defer cancel()
	if err := d.path.Detach(ctx, i.Name); err != nil {
		d.log.Warn("the datapath does not give an interface up", "interface", i.Name, "error", err)
	}
	if i.link.Present {
		return
	}
	if err := d.sys.forget(i.Name); err != nil {
		d.log.Warn("the journal is not written", "interface", i.Name, "error", err)
	}
}

// startProbe begins to probe the gateway by an interface that has a link.
func (d *Daemon) startProbe(i *iface) {
	if d.cfg.Probe.Interval <= 0 || d.lease == nil || !d.lease.Router.IsValid() || i.probing != nil || !i.link.Carrier {
		return
	}
	c := probe.Config{MAC: i.mac(), Gateway: d.lease.Router, Interval: d.cfg.Probe.Interval, Window: d.cfg.Probe.Window}
	ctx, cancel := context.WithCancel(d.ctx)
	t := &task{cancel}
	i.probing = t
	index := i.link.Index
	d.wg.Go(func() {
		defer cancel()
		err := d.probe(ctx, i, t, c, index)
		if ctx.Err() != nil {
			return
		}
		d.post(ctx, func() {
			if i.probing == t {
				d.log.Warn("the gateway is not probed any more", "interface", i.Name, "error", err)
				i.stopProbe()
			}
		})
	})
}

// probe probes until ctx ends or the interface fails.
func (d *Daemon) probe(ctx context.Context, i *iface, t *task, c probe.Config, index int) error {
	socket, err := d.sys.arp(index)
	if err != nil {
		return err
	}
	defer socket.Close()
	return probe.Run(ctx, c, socket, func(s probe.Sample) {
		d.post(ctx, func() {
			if i.probing == t {
				d.probed(i, s)
			}
		})
	})
}

// restartProbes probes the gateway of a new lease.
func (d *Daemon) restartProbes() {
	for _, i := range d.interfaces {
		i.stopProbe()
		d.startProbe(i)
	}
}

// stopProbe ends probing, and forgets what it has found.
func (i *iface) stopProbe() {
	if i.probing != nil {
		i.probing.cancel()
		i.probing = nil
	}
	i.sample = probe.Sample{}
}

func (d *Daemon) probed(i *iface, s probe.Sample) {
	i.sample = s
	if i == d.active && s.Gateway != (openflow.MAC{}) {
		d.setNeighbour(s.Gateway)
	}
	d.decide()
}

// readRadios reads all signals. Another access point is another link.
func (d *Daemon) readRadios() {
	found := false
	for _, i := range d.interfaces {
		if !i.usable() {
			continue
		}
		r, ok := d.sys.radio(i.Name, i.link.Index)
		if !ok {
			continue
		}
		found = true
		roamed := i.radio.AP != openflow.MAC{} && r.AP != openflow.MAC{} && r.AP != i.radio.AP
		i.radio = r
		if roamed {
			d.log.Info("another access point", "interface", i.Name, "ap", r.AP)
			d.linkLost(i)
			d.startProbe(i)
		}
	}
	if found {
		d.decide()
	}
}

// setNeighbour tells the kernel where the gateway is in the network that the
// device is in.
func (d *Daemon) setNeighbour(mac openflow.MAC) {
	if d.lease == nil || !d.lease.Router.IsValid() {
		return
	}
	if err := d.sys.neighbour(d.lease.Router, mac); err != nil {
		d.log.Debug("the gateway's address is not set", "error", err)
	}
}
