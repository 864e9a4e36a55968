package plugin

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
	MAC    openflow.MAC `json:"mac" doc:"MAC address of the interface to go on with"`
	To     *Port        `json:"to,omitempty" doc:"Port where the network expects the device; any, if left out"`
	// Prepared says that the network sends to the new place already.
	Prepared bool      `json:"prepared" doc:"The place is prepared"`
	Cause    string    `json:"cause" doc:"Who wants it"`
	Why      string    `json:"why,omitempty" doc:"Reason in words"`
	Hold     Duration  `json:"hold" doc:"How long the device is to stay there whatever its own policy says"`
	Time     time.Time `json:"time"`
}

const (
	// orderKept is how long an order waits for a daemon that is not connected.
	orderKept = 30 * time.Second
	// orderBeat is how often an idle stream carries a comment.
	orderBeat = 5 * time.Second
	// orderWrite bounds a write to a daemon that does not read.
	orderWrite = 5 * time.Second
	// maxListeners bounds the streams at once, maxOrders the orders that wait.
	maxListeners = 65536
	maxOrders    = 65536
)

// daemons are what devices' daemons use of the API.
type daemons struct {
	*core
	orders   *orders
	headers  deviceauth.Checker
	stopping <-chan struct{} // closed when the API stops
}

// orders pass on orders to the daemons that listen, the latest for each device.
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
	// over is closed when another stream has taken its place.
	over chan struct{}
}

func newOrders(now func() time.Time) *orders {
	// Numbers go on after a restart, since they follow the clock.
	return &orders{now: now, next: uint64(now().UnixMilli()), latest: map[string]Order{}, listeners: map[string]*listener{}}
}

// give gives an order, and says whether a daemon listens.
func (o *orders) give(order Order) (Order, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if len(o.latest) >= maxOrders {
		for id, old := range o.latest {
			if now.Sub(old.Time) > orderKept {
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

// put replaces an order that has not been taken yet. The lock is held.
func (l *listener) put(order Order) {
	select {
	case <-l.orders:
	default:
	}
	l.orders <- order
}

// listen begins to listen for a device, after an order. A second listener takes
// the place of the first, which is most likely a connection that has died
// unnoticed.
func (o *orders) listen(device string, after uint64) (*listener, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	old := o.listeners[device]
	if old == nil && len(o.listeners) >= maxListeners {
		return nil, false
	}
	if old != nil {
		close(old.over)
	}
	l := &listener{orders: make(chan Order, 1), over: make(chan struct{})}
	o.listeners[device] = l
	if order, ok := o.latest[device]; ok && order.ID > after && o.now().Sub(order.Time) <= orderKept {
		l.put(order)
	}
	return l, true
}

// leave ends listening.
func (o *orders) leave(device string, l *listener) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listeners[device] == l {
		delete(o.listeners, device)
	}
}

// listening says whether a daemon of the device is connected.
func (o *orders) listening(device string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.listeners[device] != nil
}

// stream writes a device's orders as server-sent events until ctx ends, stopping
// is closed or the daemon is gone.
func (o *orders) stream(ctx context.Context, stopping <-chan struct{}, w http.ResponseWriter, l *listener) error {
	control := http.NewResponseController(w)
	write := func(text string) error {
		if err := control.SetWriteDeadline(time.Now().Add(orderWrite)); err != nil {
			return fmt.Errorf("set a deadline: %w", err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		return control.Flush()
	}
	// The first comment makes the header go out at once.
	if err := write(": listening\n\n"); err != nil {
		return err
	}
	beat := time.NewTicker(orderBeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stopping:
			return nil
		case <-l.over:
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

// daemons is how many daemons listen.
func (o *orders) daemons() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.listeners)
}
