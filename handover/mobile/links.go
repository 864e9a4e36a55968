package mobile

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/handover/mobile/device"
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
	if l.Index == old.Index && int32(l.Flaps-old.Flaps) < 0 {
		return // an event from before the daemon looked for itself
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
	// A carrier that went and came between two looks is a new link, too.
	if !l.Carrier || l.Flaps != old.Flaps || l.Index != old.Index {
		d.linkLost(i)
	}
	if l.Carrier && (!old.Carrier || l.Flaps != old.Flaps || l.Index != old.Index) {
		i.failures, i.bar, i.noRadio = 0, bar{}, time.Time{}
		d.radios.Reset(radioInterval)
		d.startProbe(i)
	}
	if old.Carrier && !l.Carrier {
		i.lost = time.Now()
		if i == d.active {
			d.askOthers(i)
		}
	}
	if old.Carrier != l.Carrier || old.Present != l.Present {
		d.log.Info("interface changed", "interface", i.Name, "present", l.Present, "link", l.Carrier)
	}
	d.decide()
}

// fitMTU has the virtual interface, and what a lease says of its routes, follow a link
// whose MTU is another now: what is larger would vanish there, and nobody be told.
func (d *Daemon) fitMTU(i *iface) {
	ctx, cancel := d.pathContext()
	defer cancel()
	if err := d.path.FitMTU(ctx); err != nil {
		d.log.Warn("the virtual interface does not follow a link's MTU", "interface", i.Name, "mtu", i.link.MTU, "error", err)
	}
	if d.held.lease != nil && d.active != nil {
		d.held.configure()
	}
}

// A link that went is looked at so often, for so long: it may come back at once, at
// another place, and the kernel's event be held back.
const (
	linkLook    = 20 * time.Millisecond
	linkLookFor = 10 * time.Second
)

// lookAtLinks looks at the links that have just gone.
func (d *Daemon) lookAtLinks() {
	for _, i := range d.interfaces {
		if i.linkIsAwaited() {
			d.lookAtLink(i)
		}
	}
}

func (i *iface) linkIsAwaited() bool {
	return i.link.Present && !i.link.Carrier && !i.lost.IsZero() && time.Since(i.lost) < linkLookFor
}

// lookAtLink takes in the state of an interface, whether or not there was an event.
func (d *Daemon) lookAtLink(i *iface) {
	l, err := d.sys.link(i.Name)
	if err != nil {
		d.log.Warn("the state of a link is not read", "interface", i.Name, "error", err)
		return
	}
	if l != i.link {
		d.linkChanged(l)
	}
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
		i.fail(err)
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

// noRadioFor is for how long an interface that has no radio is not asked again: asking
// is most of what a daemon at rest would do.
const noRadioFor = time.Minute

// readRadios reads all signals. Another access point is another link.
func (d *Daemon) readRadios() {
	found, none := false, true
	for _, i := range d.interfaces {
		if i.link.Carrier && time.Now().Before(i.noRadio) {
			continue
		}
		none = none && !i.link.Carrier
		if !i.usable() {
			continue
		}
		r, ok := d.sys.radio(i.Name, i.link.Index)
		if !ok {
			if i.radio == (device.Radio{}) { // not one that is just out of reach
				i.noRadio = time.Now().Add(noRadioFor)
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
		d.radios.Reset(noRadioFor) // until a link is new
	}
	if found {
		d.decide()
	}
}
