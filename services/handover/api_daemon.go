package handover

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/deviceauth"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/openflow"
)

// ordersInput is the input of the stream of orders.
type ordersInput struct {
	kit.ByName
	LastEventID string `header:"Last-Event-ID" format:"event-id" doc:"Continue after this order"`
}

// reportInput is a daemon's report about an order.
type reportInput struct {
	kit.ByName
	Order uint64 `path:"order" doc:"Number of the order"`
	Body  struct {
		Done bool   `json:"done" doc:"The device has moved"`
		Text string `json:"text,omitempty" maxLength:"500" doc:"Why the device has not moved, or how it has"`
	}
}

// register adds the operations that a device's daemon uses. They are the only part of the API that
// a device's own key opens.
func (s *daemons) register(a *api.API, r kit.REST) {
	s.stopping = a.Stopping()
	a.Accept(deviceauth.Scheme, s.identifyDevice)
	op := r.Operation(http.MethodGet, "devices/{name}/orders", "Follow the orders to a device")
	op.Description = "Server-sent events of kind order, for the device's daemon: with an operator's credentials, or a header " +
		"\"Authorization: " + deviceauth.Scheme + " ...\" made with the device's key. Another stream for the same device ends this one."
	op.Responses = map[string]*huma.Response{"200": {
		Description: "The stream", Content: map[string]*huma.MediaType{"text/event-stream": {}},
	}}
	huma.Register(a.Huma(), op, s.followOrders)
	kit.Register(r, http.MethodPost, "devices/{name}/orders/{order}", "Report the result of an order", s.postReport)
}

func (s *daemons) followOrders(_ context.Context, in *ordersInput) (*huma.StreamResponse, error) {
	if _, ok := s.registry.Device(in.Name); !ok {
		return nil, problem(errUnknown, "path.name", in.Name)
	}
	var after uint64
	if in.LastEventID != "" {
		var err error
		if after, err = strconv.ParseUint(in.LastEventID, 10, 64); err != nil {
			return nil, api.Invalid("header.Last-Event-ID", in.LastEventID, "the number of an order")
		}
	}
	l, ok := s.orders.listen(in.Name, after)
	if !ok {
		return nil, api.Unavailable("%d daemons listen already", maxListeners)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer s.orders.leave(in.Name, l)
		r, w := humago.Unwrap(hc)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		if err := s.orders.stream(ctx, s.stopping, w, l); err != nil && ctx.Err() == nil {
			s.log.Debug("stream of orders ended", "device", in.Name, "error", err)
		}
	}}, nil
}

func (s *daemons) postReport(_ context.Context, in *reportInput) (*kit.Nothing, error) {
	if _, ok := s.registry.Device(in.Name); !ok {
		return nil, problem(errUnknown, "path.name", in.Name)
	}
	s.log.Info("a device has carried out an order, or not", "device", in.Name, "order", in.Order, "done", in.Body.Done, "text", in.Body.Text)
	s.publish("device.reported", map[string]any{"device": in.Name, "order": in.Order, "done": in.Body.Done, "text": in.Body.Text})
	return nil, nil
}

// identifyDevice checks the credentials of a device's daemon, and returns the name of the caller for
// the API. The credentials permit the paths of the device's own orders, and no others.
func (s *daemons) identifyDevice(r *http.Request) (string, error) {
	c, err := deviceauth.Parse(r.Header.Get("Authorization"))
	if err != nil {
		return "", err
	}
	d, _ := s.registry.Device(c.ID)
	if err := s.headers.Check(c, d.Key, r.Method, r.URL.Path, s.now()); err != nil {
		return "", err
	}
	if own := api.Prefix + "/" + Name + "/devices/" + c.ID + "/orders"; r.URL.Path != own && !strings.HasPrefix(r.URL.Path, own+"/") {
		return "", fmt.Errorf("a device may use %s only", own)
	}
	return "device:" + c.ID, nil
}

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
	// maxListeners bounds the concurrent streams, and maxOrders the orders that wait for daemons.
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

// give numbers an order and passes it on to the device's daemon. It returns the numbered order, and
// reports whether the daemon listens.
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

// daemons returns the number of daemons that listen.
func (o *orders) daemons() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.listeners)
}
