package mobile

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Order is what the network tells the device to do.
type Order struct {
	// ID names the order towards the controller.
	ID uint64
	// MAC is the address of the interface that the device shall go on with. That
	// of the virtual interface, or none, leaves the choice of another one than
	// the present to the device.
	MAC openflow.MAC
	// Why is the controller's reason.
	Why string
	// Hold is how long the device shall stay there, whatever its own policy says.
	Hold time.Duration
}

// OrderSource is a controller that gives orders.
type OrderSource interface {
	// Follow calls f with each order until the connection ends or ctx does, and
	// connected once it stands.
	Follow(ctx context.Context, connected func(), f func(Order)) error
	// Report tells the controller what has become of an order.
	Report(ctx context.Context, o Order, m Move, err error) error
}

// Waits before a connection that has ended is made again.
const (
	ordersAgainFrom = time.Second
	ordersAgainTo   = 30 * time.Second
	// ordersStood is how long a connection must have stood to count as good.
	ordersStood   = 10 * time.Second
	reportTimeout = 5 * time.Second
)

// followOrders obeys a controller until ctx ends.
func (d *Daemon) followOrders(ctx context.Context) {
	wait := ordersAgainFrom
	for {
		began := time.Now()
		err := d.cfg.Orders.Follow(ctx,
			func() { d.ordersAre(ctx, "connected") },
			func(o Order) { d.obey(ctx, o) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > ordersStood {
			wait = ordersAgainFrom
		}
		text := "the connection ended"
		if err != nil {
			text = err.Error()
		}
		d.ordersAre(ctx, "not connected: "+text)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, ordersAgainTo)
	}
}

// ordersAre notes how the controller is reached, and logs what is new.
func (d *Daemon) ordersAre(ctx context.Context, state string) {
	d.post(ctx, func() {
		if d.ordersState != state {
			d.log.Info("orders of the network", "state", state)
		}
		d.ordersState = state
	})
}

// obey carries an order out and reports what became of it. Orders come one after
// the other.
func (d *Daemon) obey(ctx context.Context, o Order) {
	why := "ordered by the network"
	if o.Why != "" {
		why += ": " + o.Why
	}
	moving, cancel := context.WithTimeout(ctx, d.cfg.AttachTimeout+pathTimeout)
	defer cancel()
	var m Move
	name, err := d.ordered(moving, o.MAC)
	if err == nil {
		m, err = d.MoveTo(moving, name, why, o.Hold)
	}
	if err != nil {
		d.log.Warn("the network's order is not carried out", "order", o.ID, "mac", o.MAC, "error", err)
	}
	reporting, stop := context.WithTimeout(ctx, reportTimeout)
	defer stop()
	if err := d.cfg.Orders.Report(reporting, o, m, err); err != nil && ctx.Err() == nil {
		d.log.Warn("the controller does not hear what became of its order", "error", err)
	}
}

// ordered is the interface that an order means.
func (d *Daemon) ordered(ctx context.Context, mac openflow.MAC) (name string, err error) {
	err = fmt.Errorf("%w with address %v", ErrUnknown, mac)
	if !d.ask(ctx, func() {
		any := mac.IsZero() || mac == d.cfg.VNIMAC
		for _, i := range d.interfaces {
			if i.mac() == mac || any && i != d.active && i.usable() {
				name, err = i.Name, nil
				return
			}
		}
	}) {
		err = errStopping
	}
	return name, err
}
