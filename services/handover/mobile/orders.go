package mobile

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Order is an order of the network to the device.
type Order struct {
	// ID identifies the order to the controller.
	ID uint64
	// MAC is the address of the interface that the device shall use. If it is zero or the virtual
	// interface's, the device chooses another interface than the present one.
	MAC openflow.MAC
	// Why is the controller's reason.
	Why string
	// Hold is how long the device shall stay on the interface, whatever its own policy says.
	Hold time.Duration
}

// OrderSource is a controller that gives orders.
type OrderSource interface {
	// Follow connects to the controller, calls connected once the connection is established, and
	// calls f with each order until the connection or ctx ends.
	Follow(ctx context.Context, connected func(), f func(Order)) error
	// Report tells the controller the result of an order.
	Report(ctx context.Context, o Order, m Move, err error) error
}

// Waits before a lost connection is made again.
const (
	ordersRetryMin = time.Second
	ordersRetryMax = 30 * time.Second
	// ordersStable is how long a connection must have lasted for the wait to start over.
	ordersStable  = 10 * time.Second
	reportTimeout = 5 * time.Second
)

// orders follows the orders of a controller.
type orders struct {
	d      *Daemon
	source OrderSource
	state  string // connection to the controller; only the loop uses it
}

// follow carries out the controller's orders until ctx ends, and reconnects when the connection ends.
func (o *orders) follow(ctx context.Context) {
	wait := ordersRetryMin
	for {
		began := time.Now()
		err := o.source.Follow(ctx,
			func() { o.setState(ctx, "connected") },
			func(order Order) { o.obey(ctx, order) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > ordersStable {
			wait = ordersRetryMin
		}
		text := "the connection ended"
		if err != nil {
			text = err.Error()
		}
		o.setState(ctx, "not connected: "+text)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, ordersRetryMax)
	}
}

// setState records the state of the connection to the controller, and logs a change.
func (o *orders) setState(ctx context.Context, state string) {
	o.d.inbox.post(ctx, func() {
		if o.state != state {
			o.d.log.Info("orders of the network", "state", state)
		}
		o.state = state
	})
}

// obey carries out an order and reports the result. Orders are carried out one after the other.
func (o *orders) obey(ctx context.Context, order Order) {
	why := "ordered by the network"
	if order.Why != "" {
		why += ": " + order.Why
	}
	moving, cancel := context.WithTimeout(ctx, o.d.cfg.AttachTimeout+datapathTimeout)
	defer cancel()
	var m Move
	name, err := o.interfaceFor(moving, order.MAC)
	if err == nil {
		m, err = o.d.MoveTo(moving, name, why, order.Hold)
	}
	if err != nil {
		o.d.log.Warn("an order of the network was not carried out", "order", order.ID, "mac", order.MAC, "error", err)
	}
	reporting, stop := context.WithTimeout(ctx, reportTimeout)
	defer stop()
	if err := o.source.Report(reporting, order, m, err); err != nil && ctx.Err() == nil {
		o.d.log.Warn("the result of an order could not be reported", "error", err)
	}
}

// interfaceFor returns the interface that an order names.
func (o *orders) interfaceFor(ctx context.Context, mac openflow.MAC) (name string, err error) {
	err = fmt.Errorf("%w with address %v", ErrUnknown, mac)
	if !o.d.inbox.call(ctx, func() {
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
