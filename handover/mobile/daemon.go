package mobile

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/handover/mobile/device"
	"github.com/sluice-net/sluice/handover/mobile/lease"
	"github.com/sluice-net/sluice/handover/mobile/policy"
	"github.com/sluice-net/sluice/handover/mobile/probe"
	"github.com/sluice-net/sluice/openflow"
)

// Daemon is a running daemon. Its fields belong to the loop.
type Daemon struct {
	cfg    Config
	log    *slog.Logger
	sys    system
	path   datapath.Datapath
	choose policy.Selector
	inbox  inbox
	wg     sync.WaitGroup
	ctx    context.Context // of everything the loop starts
	wake   *time.Timer
	radios *time.Ticker // when signals are read
	// overlap is when listening to an interface that was left may end.
	overlap *time.Timer

	started    time.Time
	interfaces []*iface // in the order of preference
	held       leaseholder
	orders     orders
	// active is the interface in use and since when it has been; nil before the
	// first lease.
	active *iface
	since  time.Time
	// wish is an interface that was asked for, until wishEnds (zero: for ever).
	wish     string
	wishEnds time.Time
	attempt  *attempt
	// told is when the kernel was last told where the gateway is.
	told  time.Time
	moves []Move
	count Counters
}

// iface is what the loop knows of an interface.
type iface struct {
	Interface
	link  device.Link
	radio device.Radio
	// noRadio is until when it is not asked again whether it has one.
	noRadio time.Time
	// attached says that the datapath has it, at link's index and address.
	attached bool
	// joined says that the network gave the lease to it since its link last came.
	joined bool
	// lost is when its link went.
	lost time.Time
	// leftUntil is until when packets may still be under way there, after the device has
	// left it or has given up to move to it.
	leftUntil time.Time
	// sample is what probing has found.
	sample  probe.Sample
	probing *probing
	// died is when the device left it because it was silent, deaths how often so in
	// a row.
	died   time.Time
	deaths int
	// bar says why, since when and until when it is not used; failures counts those in a
	// row that led to one.
	failures int
	bar      bar
}

// bar keeps the device from an interface that has failed. Answered probes end it, since
// what they show is newer, but not at once: the edge may answer for a while although
// nothing gets through. If there is nothing else, an interface that answers is used.
type bar struct {
	why          string
	since, until time.Time
	// resort is when the interface may be a last resort at the earliest. silent says
	// that it was barred because nothing was heard, so that answers end the bar.
	resort time.Time
	silent bool
}

// probing is what probes by an interface.
type probing struct {
	*task
	*probe.Prober
}

// task is a goroutine that the loop has started and can stop.
type task struct{ cancel context.CancelFunc }

func newDaemon(cfg Config, sys system, path datapath.Datapath) *Daemon {
	d := &Daemon{
		cfg: cfg, log: cfg.Log, sys: sys, path: path,
		choose:  policy.Selector{Rules: cfg.Policy},
		inbox:   inbox{functions: make(chan func(), inboxSize)},
		started: time.Now(),
	}
	d.held = leaseholder{d: d, client: lease.New(lease.Config{
		MAC: cfg.VNIMAC, HostName: cfg.HostName, Sign: cfg.Sign, Retransmit: cfg.Retransmit, Log: cfg.Log,
	})}
	d.orders = orders{d: d, source: cfg.Orders}
	for _, i := range cfg.Interfaces {
		d.interfaces = append(d.interfaces, &iface{Interface: i})
	}
	return d
}

// run serves the control interface, if there is a listener, and runs the loop
// until ctx ends or something fails that the daemon cannot do without. All that
// it has started has ended when it returns.
func (d *Daemon) run(ctx context.Context, control net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer d.wg.Wait()
	defer cancel()
	d.ctx, d.inbox.over = ctx, ctx.Done()
	d.wake, d.overlap = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	d.overlap.Stop() // until there is one
	d.radios = time.NewTicker(radioInterval)
	defer d.wake.Stop()
	defer d.overlap.Stop()
	d.held.load()

	failed := make(chan error, 2)
	names := make([]string, len(d.interfaces))
	for i, f := range d.interfaces {
		names[i] = f.Name
	}
	d.wg.Go(func() {
		failed <- d.sys.watch(ctx, names, func(l device.Link) { d.inbox.post(ctx, func() { d.linkChanged(l) }) })
	})
	if control != nil {
		d.wg.Go(func() { failed <- d.serve(ctx, control) })
	}
	if d.cfg.Orders != nil {
		d.wg.Go(func() { d.orders.follow(ctx) })
	}
	return d.loop(ctx, failed)
}

func (d *Daemon) loop(ctx context.Context, failed <-chan error) error {
	defer d.radios.Stop()
	for {
		select {
		case <-ctx.Done():
			d.held.release()
			return nil
		case err := <-failed:
			if ctx.Err() == nil {
				return err
			}
		case f := <-d.inbox.functions:
			f()
		case <-d.radios.C:
			d.readRadios()
		case <-d.overlap.C:
			d.endOverlap()
		case <-d.wake.C:
			d.lookAtLinks()
			d.decide()
		}
	}
}

func (d *Daemon) find(name string) *iface {
	for _, i := range d.interfaces {
		if i.Name == name {
			return i
		}
	}
	return nil
}

// mac is the address that frames of the interface bear.
func (i *iface) mac() openflow.MAC { return i.link.MAC }

// usable says that the interface has a link and the datapath has the interface.
func (i *iface) usable() bool { return i.attached && i.link.Carrier }
