package mobile

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
	"github.com/sluice-net/sluice/services/handover/mobile/device"
)

// radioInterval is how often radio signals are read.
const radioInterval = time.Second

// datapathTimeout bounds one change of the datapath.
const datapathTimeout = 5 * time.Second

// datapathContext returns a context for one change of the datapath.
func (d *Daemon) datapathContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.ctx, datapathTimeout)
}

// linkChanged handles a new state of an interface.
func (d *Daemon) linkChanged(l device.Link) {
	i := d.find(l.Name)
	if i == nil {
		return
	}
	old := i.link
	if l.Index == old.Index && int32(l.Flaps-old.Flaps) < 0 {
		return // an event from before the daemon read the link itself
	}
	i.link = l
	if l.Index != old.Index {
		i.radio = device.Radio{}
	}
	if i.attached && (!l.Present || l.Index != old.Index || l.MAC != old.MAC) {
		d.detach(i)
	}
	if l.Present && !i.attached {
		d.attach(i)
	}
	if i.attached && l.MTU != old.MTU {
		d.fitMTU(i)
	}
	// A carrier that was lost and came back between two events is a new link, too.
	if !l.Carrier || l.Flaps != old.Flaps || l.Index != old.Index {
		d.linkLost(i)
	}
	if l.Carrier && (!old.Carrier || l.Flaps != old.Flaps || l.Index != old.Index) {
		i.failures, i.backoff, i.noRadioUntil = 0, backoff{}, time.Time{}
		d.radios.Reset(radioInterval)
		d.startProbe(i)
	}
	if old.Carrier && !l.Carrier {
		i.lost = time.Now()
		if i == d.active {
			d.probeOthers(i)
		}
	}
	if old.Carrier != l.Carrier || old.Present != l.Present {
		d.log.Info("interface changed", "interface", i.Name, "present", l.Present, "link", l.Carrier)
	}
	d.decide()
}

// fitMTU adapts the virtual interface, and the routes of the lease, to the changed MTU of a link.
// Packets larger than the MTU would be lost at the link without notice.
func (d *Daemon) fitMTU(i *iface) {
	ctx, cancel := d.datapathContext()
	defer cancel()
	if err := d.path.FitMTU(ctx); err != nil {
		d.log.Warn("the virtual interface could not be adapted to a link's MTU", "interface", i.Name, "mtu", i.link.MTU, "error", err)
	}
	if d.leaseholder.lease != nil && d.active != nil {
		d.leaseholder.configure()
	}
}

// A lost link is polled every linkPoll for linkPollFor: it may come back at once, at another
// place, and the kernel's event may be delayed.
const (
	linkPoll    = 20 * time.Millisecond
	linkPollFor = 10 * time.Second
)

// pollLostLinks reads the state of the links that were lost lately.
func (d *Daemon) pollLostLinks() {
	for _, i := range d.interfaces {
		if i.awaitsLink() {
			d.pollLink(i)
		}
	}
}

// awaitsLink reports whether the interface has lost its link lately.
func (i *iface) awaitsLink() bool {
	return i.link.Present && !i.link.Carrier && !i.lost.IsZero() && time.Since(i.lost) < linkPollFor
}

// pollLink reads the state of an interface and handles a change.
func (d *Daemon) pollLink(i *iface) {
	l, err := d.sys.link(i.Name)
	if err != nil {
		d.log.Warn("the state of a link could not be read", "interface", i.Name, "error", err)
		return
	}
	if l != i.link {
		d.linkChanged(l)
	}
}

// linkLost resets the state that belonged to a lost link.
func (d *Daemon) linkLost(i *iface) {
	i.joined = false
	i.stopProbe()
	if d.attempt != nil && d.attempt.target == i {
		d.abandon(errLinkLost)
	}
}

// attach adopts an interface and gives it to the datapath.
func (d *Daemon) attach(i *iface) {
	ctx, cancel := d.datapathContext()
	defer cancel()
	err := d.sys.adopt(i.Name)
	if err == nil {
		err = d.path.Attach(ctx, datapath.Interface{Name: i.Name, MAC: i.mac()})
	}
	if err != nil {
		i.startBackoff(err)
		return
	}
	i.attached = true
}

// detach removes an interface from the datapath after the interface has vanished, has got another MAC
// address, or has been replaced by another interface of the same name.
func (d *Daemon) detach(i *iface) {
	i.attached = false
	d.linkLost(i)
	ctx, cancel := d.datapathContext()
	defer cancel()
	if err := d.path.Detach(ctx, i.Name); err != nil {
		d.log.Warn("an interface could not be removed from the datapath", "interface", i.Name, "error", err)
	}
	if i.link.Present {
		return
	}
	if err := d.sys.forget(i.Name); err != nil {
		d.log.Warn("the journal could not be written", "interface", i.Name, "error", err)
	}
}

// noRadioFor is how long the daemon does not look again for a radio of an interface that had none:
// looking would be most of the work of an idle daemon.
const noRadioFor = time.Minute

// readRadios reads all radio signals. A link to another access point is a new link.
func (d *Daemon) readRadios() {
	found, none := false, true
	for _, i := range d.interfaces {
		if i.link.Carrier && time.Now().Before(i.noRadioUntil) {
			continue
		}
		none = none && !i.link.Carrier
		if !i.usable() {
			continue
		}
		r, ok := d.sys.radio(i.Name, i.link.Index)
		if !ok {
			if i.radio == (device.Radio{}) { // a radio that was read before may just be out of reach
				i.noRadioUntil = time.Now().Add(noRadioFor)
			}
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
	if none {
		d.radios.Reset(noRadioFor) // until there is a new link
	}
	if found {
		d.decide()
	}
}
