package mobile

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/device"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
	"github.com/sluice-net/sluice/services/handover/mobile/policy"
	"github.com/sluice-net/sluice/services/handover/mobile/probe"
)

// Daemon is a running daemon. Only the loop uses its fields.
type Daemon struct {
	cfg      Config
	log      *slog.Logger
	sys      system
	path     forwarder
	selector policy.Selector
	inbox    inbox
	wg       sync.WaitGroup
	ctx      context.Context // context of everything the loop starts
	wake     *time.Timer
	radios   *time.Ticker // ticks when radio signals are read
	// overlap fires when the device may stop receiving on an interface that it has left.
	overlap *time.Timer

	started     time.Time
	interfaces  []*iface // in the order of preference
	leaseholder leaseholder
	orders      orders
	// active is the interface in use, or nil before the first lease. since is when it became
	// active.
	active *iface
	since  time.Time
	// requested is the interface that a user or the network has asked for; empty if none. The
	// request ends at requestedUntil; zero means without end.
	requested      string
	requestedUntil time.Time
	attempt        *attempt
	// neighbourSet is when the kernel was last told the gateway's address.
	neighbourSet time.Time
	moves        []Move
	count        Counters
	// drift counts what other programs have changed, and keeper restores it. keeper is nil in tests.
	drift  *drift.Counts
	keeper *drift.Keeper
}

// iface is the loop's state of an interface.
type iface struct {
	Interface
	link  device.Link
	radio device.Radio
	// noRadioUntil is the time before which the daemon does not look again for a radio of the
	// interface.
	noRadioUntil time.Time
	// attached reports whether the datapath has the interface, with link's index and address.
	attached bool
	// joined reports whether the network has granted the lease on the interface since its link
	// last came up.
	joined bool
	// lost is when the interface's link went down.
	lost time.Time
	// leftUntil is the time until which packets to the interface may still be in flight after the
	// device has left it or has given up a move to it.
	leftUntil time.Time
	// sample is the latest result of probing.
	sample  probe.Sample
	probing *probing
	// wentSilent is when the device last left the interface because the interface was silent.
	// silences is how often that has happened in a row.
	wentSilent time.Time
	silences   int
	// backoff holds why and until when the interface is not used. failures counts the failures to
	// join its network in a row.
	failures int
	backoff  backoff
}

// backoff keeps the device from using an interface that has failed. If the interface was silent, a
// probe that is answered later ends the back-off, but not at once: the edge may answer for a while
// although no packet gets through. If no other interface can be used, the device uses one that answers
// during its back-off.
type backoff struct {
	why          string
	since, until time.Time
	// lastResort is the earliest time at which the interface may be used because no other can be.
	// silent reports whether the interface was silent; then answers end the back-off.
	lastResort time.Time
	silent     bool
}

// probing is a running prober of an interface.
type probing struct {
	task *task
	*probe.Prober
}

// task is a goroutine that the loop has started and can stop.
type task struct{ cancel context.CancelFunc }

// newDaemon returns a daemon that does not run yet.
func newDaemon(cfg Config, sys system, path forwarder) *Daemon {
	d := &Daemon{
		cfg: cfg, log: cfg.Log, sys: sys, path: path,
		selector: policy.Selector{Rules: cfg.Policy},
		inbox:    inbox{functions: make(chan func(), inboxSize)},
		started:  time.Now(), drift: drift.NewCounts(cfg.Log),
	}
	d.leaseholder = leaseholder{d: d, client: lease.New(lease.Config{
		MAC: cfg.VNIMAC, HostName: cfg.HostName, Sign: cfg.Sign, Retransmit: cfg.Retransmit, Log: cfg.Log,
	})}
	d.orders = orders{d: d, source: cfg.Orders}
	for _, i := range cfg.Interfaces {
		d.interfaces = append(d.interfaces, &iface{Interface: i})
	}
	return d
}

// run serves the control interface, if there is a listener, and runs the loop until ctx ends or a
// part fails that the daemon needs. All goroutines that run has started have ended when run returns.
func (d *Daemon) run(ctx context.Context, control net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer d.wg.Wait()
	defer cancel()
	d.ctx, d.inbox.closed = ctx, ctx.Done()
	d.wake, d.overlap = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	d.overlap.Stop() // a move starts the timer
	d.radios = time.NewTicker(radioInterval)
	defer d.wake.Stop()
	defer d.overlap.Stop()
	d.leaseholder.load()

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
	if d.keeper != nil {
		d.wg.Go(func() {
			if err := d.keeper.Run(ctx); err != nil {
				d.log.Error("what other programs change on the device is no longer restored", "error", err)
			}
		})
	}
	if d.cfg.Orders != nil {
		d.wg.Go(func() { d.orders.follow(ctx) })
	}
	return d.loop(ctx, failed)
}

// loop handles events until ctx ends.
func (d *Daemon) loop(ctx context.Context, failed <-chan error) error {
	defer d.radios.Stop()
	for {
		select {
		case <-ctx.Done():
			d.leaseholder.release()
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
			d.pollLostLinks()
			d.decide()
		}
	}
}

// find returns the interface of that name, or nil.
func (d *Daemon) find(name string) *iface {
	for _, i := range d.interfaces {
		if i.Name == name {
			return i
		}
	}
	return nil
}

// mac returns the source address of frames that leave by the interface.
func (i *iface) mac() openflow.MAC { return i.link.MAC }

// usable reports whether the interface has a link and the datapath has the interface.
func (i *iface) usable() bool { return i.attached && i.link.Carrier }
