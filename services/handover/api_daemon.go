package handover

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/deviceauth"
	"github.com/sluice-net/sluice/kit"
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

// identifyDevice checks the credentials of a device's daemon. They open the paths below the
// device's own orders, and no others.
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
