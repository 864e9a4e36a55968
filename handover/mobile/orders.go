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

// orders are followed of a controller that gives them.
type orders struct {
	d      *Daemon
	source OrderSource
	state  string // how the controller is reached; the loop's
}

// follow obeys the controller until ctx ends.
func (o *orders) follow(ctx context.Context) {
	wait := ordersAgainFrom
	for {
		began := time.Now()
		err := o.source.Follow(ctx,
			func() { o.note(ctx, "connected") },
			func(order Order) { o.obey(ctx, order) })
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
		o.note(ctx, "not connected: "+text)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, ordersAgainTo)
	}
}

// note notes how the controller is reached, and logs what is new.
func (o *orders) note(ctx context.Context, state string) {
	o.d.inbox.post(ctx, func() {
		if o.state != state {
			o.d.log.Info("orders of the network", "state", state)
		}
		o.state = state
	})
}

// obey carries an order out and reports what became of it. Orders come one after
// the other.
func (o *orders) obey(ctx context.Context, order Order) {
	why := "ordered by the network"
	if order.Why != "" {
		why += ": " + order.Why
	}
	moving, cancel := context.WithTimeout(ctx, o.d.cfg.AttachTimeout+pathTimeout)
	defer cancel()
	var m Move
	name, err := o.meant(moving, order.MAC)
	if err == nil {
		m, err = o.d.MoveTo(moving, name, why, order.Hold)
	}
	if err != nil {
		o.d.log.Warn("the network's order is not carried out", "order", order.ID, "mac", order.MAC, "error", err)
	}
	reporting, stop := context.WithTimeout(ctx, reportTimeout)
	defer stop()
	if err := o.source.Report(reporting, order, m, err); err != nil && ctx.Err() == nil {
		o.d.log.Warn("the controller does not hear what became of its order", "error", err)
	}
}

// meant is the interface that an order means.
func (o *orders) meant(ctx context.Context, mac openflow.MAC) (name string, err error) {
	err = fmt.Errorf("%w with address %v", ErrUnknown, mac)
	if !o.d.inbox.ask(ctx, func() {
		any := mac.IsZero() || mac == o.d.cfg.VNIMAC
		for _, i := range o.d.interfaces {
			if i.mac() == mac || any && i != o.d.active && i.usable() {
				name, err = i.Name, nil
				return
			}
		}
	}) {
		err = errStopping
	}
	return name, err
}
