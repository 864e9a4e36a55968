package handover

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/deviceauth"
	"github.com/sluice-net/sluice/openflow"
)

// Order tells a device's daemon to move.
type Order struct {
	ID     uint64       `json:"id" doc:"Number of the order, growing"`
	Device string       `json:"device"`
	MAC    openflow.MAC `json:"mac" doc:"MAC address of the interface that the device shall use"`
	To     *Port        `json:"to,omitempty" doc:"Port where the network expects the device; any, if left out"`
	// Prepared reports whether the network already sends packets to the new place.
	Prepared bool      `json:"prepared" doc:"The place is prepared"`
	Cause    string    `json:"cause" doc:"Who has requested it"`
	Why      string    `json:"why,omitempty" doc:"Reason, as text"`
	Hold     Duration  `json:"hold" doc:"How long the device shall stay there, whatever its own policy says"`
	Time     time.Time `json:"time"`
}

const (
	// orderLifetime is how long an order waits for a daemon that is not connected.
	orderLifetime = 30 * time.Second
	// heartbeat is how often an idle stream carries a comment.
	heartbeat = 5 * time.Second
	// orderWriteTimeout bounds a write to a daemon that does not read.
	orderWriteTimeout = 5 * time.Second
	// maxListeners bounds the concurrent streams, maxOrders the orders that wait.
	maxListeners = 65536
	maxOrders    = 65536
)

// daemons implements the operations of the API that devices' daemons use.
type daemons struct {
	*core
	orders   *orders
	headers  deviceauth.Checker
	stopping <-chan struct{} // closed when the API stops
}

// orders passes orders on to the daemons that listen. It keeps the latest order of each device.
type orders struct {
	now func() time.Time

	mu        sync.Mutex
	next      uint64
	latest    map[string]Order
	listeners map[string]*listener
}

// listener is the stream of one daemon.
type listener struct {
	orders chan Order
	// replaced is closed when another stream has replaced this one.
	replaced chan struct{}
}

// newOrders returns orders without any listener.
func newOrders(now func() time.Time) *orders {
	// The numbers follow the clock, so they keep growing over a restart.
	return &orders{now: now, next: uint64(now().UnixMilli()), latest: map[string]Order{}, listeners: map[string]*listener{}}
}

// give passes an order on, and reports whether a daemon listens.
func (o *orders) give(order Order) (Order, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if len(o.latest) >= maxOrders {
		for id, old := range o.latest {
			if now.Sub(old.Time) > orderLifetime {
				delete(o.latest, id)
			}
		}
	}
	order.ID, order.Time = o.next, now.UTC()
	o.next++
	if len(o.latest) < maxOrders {
		o.latest[order.Device] = order
	}
	l := o.listeners[order.Device]
	if l == nil {
		return order, false
	}
	l.put(order)
	return order, true
}

// put queues an order in place of one that has not been taken yet. The caller holds the lock.
func (l *listener) put(order Order) {
	select {
	case <-l.orders:
	default:
	}
	l.orders <- order
}

// listen registers a listener for a device's orders after the given number. It replaces an earlier
// listener of the device, whose connection has most likely died unnoticed.
func (o *orders) listen(device string, after uint64) (*listener, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.listeners[device]
	if old == nil && len(o.listeners) >= maxListeners {
		return nil, false
	}
	if old != nil {
		close(old.replaced)
	}
	l := &listener{orders: make(chan Order, 1), replaced: make(chan struct{})}
	o.listeners[device] = l
	if order, ok := o.latest[device]; ok && order.ID > after && o.now().Sub(order.Time) <= orderLifetime {
		l.put(order)
	}
	return l, true
}

// leave removes a listener.
func (o *orders) leave(device string, l *listener) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listeners[device] == l {
		delete(o.listeners, device)
	}
}

// isListening reports whether a daemon of the device is connected.
func (o *orders) isListening(device string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.listeners[device] != nil
}

// stream writes a device's orders as server-sent events until ctx ends, stopping is closed or the
// daemon has disconnected.
func (o *orders) stream(ctx context.Context, stopping <-chan struct{}, w http.ResponseWriter, l *listener) error {
	control := http.NewResponseController(w)
	write := func(text string) error {
		if err := control.SetWriteDeadline(time.Now().Add(orderWriteTimeout)); err != nil {
			return fmt.Errorf("set a deadline: %w", err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		return control.Flush()
	}
	// The first comment makes the server send the header at once.
	if err := write(": listening\n\n"); err != nil {
		return err
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stopping:
			return nil
		case <-l.replaced:
			return write("event: replaced\ndata: {}\n\n")
		case <-beat.C:
			err = write(": still here\n\n")
		case order := <-l.orders:
			b, e := json.Marshal(order)
			if e != nil {
				return fmt.Errorf("order %d: %w", order.ID, e)
			}
			err = write(fmt.Sprintf("id: %d\nevent: order\ndata: %s\n\n", order.ID, b))
		}
		if err != nil {
			return err
		}
	}
}

// daemons returns how many daemons listen.
func (o *orders) daemons() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.listeners)
}
