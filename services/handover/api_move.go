package handover

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// MoveSpec says where a device is told to go.
type MoveSpec struct {
	Port  string `json:"port,omitempty" format:"dpid-port" doc:"Port where it is expected, like 00000000000000a1/3. It is prepared first. Default: any."`
	MAC   string `json:"mac,omitempty" format:"mac" doc:"MAC address of the interface that it shall use. Default: the one it uses now or, without a port, its next one."`
	Hold  string `json:"hold,omitempty" format:"go-duration" doc:"How long it shall stay there, whatever its own policy says, like 30s"`
	Why   string `json:"why,omitempty" maxLength:"200" doc:"Reason, which the device is told"`
	Force bool   `json:"force,omitempty" doc:"Give the order even if no daemon listens now: it is kept for 30s"`
}

// PlaceSpec is a place to prepare.
type PlaceSpec struct {
	Port    string `json:"port" format:"dpid-port" doc:"Edge port, like 00000000000000a1/3"`
	MAC     string `json:"mac,omitempty" format:"mac" doc:"MAC address that the device will use there. Default: the one it uses now."`
	Timeout string `json:"timeout,omitempty" format:"go-duration" doc:"How long it stays prepared if the device does not come, 100ms to 10m. Default: as configured."`
}

// maxPrepare and maxHold bound what a request may ask for.
const (
	maxPrepare = 10 * time.Minute
	maxHold    = 24 * time.Hour
)

// parsePlace parses a port and an interface of a device.
func (s *apiHandlers) parsePlace(r *reader, d registry.Device, port, mac string) (at network.PortRef, m openflow.MAC) {
	if port != "" {
		var err error
		if at, err = ParsePort(port); err != nil {
			r.Add("port", port, wantPort)
		} else if why := s.whyNotAttachable(at); why != "" {
			r.Add("port", port, "%s", why)
		}
	}
	if mac != "" {
		if m = r.mac("mac", mac); !m.IsZero() && !d.Has(m) {
			r.Add("mac", mac, "one of the device's MAC addresses: %v", d.MACs)
		}
	}
	return at, m
}

// within parses a duration and checks its bounds.
func (r *reader) within(field, text string, standard, low, high time.Duration) time.Duration {
	d := r.duration(field, text, standard)
	r.Check(text == "" || d >= low && d <= high, field, text, "a duration from %v to %v", low, high)
	return d
}

type moveInput struct {
	kit.ByName
	Body MoveSpec
}

// postMove prepares the place and orders the device's daemon to go there.
func (s *apiHandlers) postMove(ctx context.Context, in *moveInput) (*kit.Body[Order], error) {
	d, ok := s.registry.Device(in.Name)
	if !ok {
		return nil, problem(errUnknown, "path.name", in.Name)
	}
	var r reader
	at, mac := s.parsePlace(&r, d, in.Body.Port, in.Body.MAC)
	hold := r.within("hold", in.Body.Hold, 0, 0, maxHold)
	if len(r.Faults) > 0 {
		return nil, kit.Refuse(r.Faults)
	}
	if !in.Body.Force && !s.daemons.orders.isListening(in.Name) {
		return nil, problem(errNoDaemon, "path.name", in.Name)
	}
	order := Order{Device: in.Name, MAC: mac, Cause: "operator", Why: in.Body.Why, Hold: Duration(hold)}
	if order.MAC.IsZero() {
		order.MAC = s.nextMAC(d, at)
	}
	if !at.IsZero() {
		if err := s.placement.prepareAt(ctx, in.Name, at, order.MAC, "operator", s.settings.PrepareTimeout); err != nil {
			return nil, problem(err, "body.port", in.Body.Port)
		}
		order.To, order.Prepared = &Port{at}, true
	}
	order, _ = s.daemons.orders.give(order)
	s.publish("device.ordered", order)
	return &kit.Body[Order]{Body: order}, nil
}

// nextMAC returns the MAC address of the interface that a device is told to use: the current one
// to go to a given port, otherwise the next of its list.
func (s *apiHandlers) nextMAC(d registry.Device, at network.PortRef) openflow.MAC {
	l, _ := s.registry.Lease(d.ID)
	if l.Attachment == nil || l.Attachment.MAC.IsZero() {
		return d.HomeMAC()
	}
	if !at.IsZero() {
		return l.Attachment.MAC
	}
	for i, m := range d.MACs {
		if m == l.Attachment.MAC {
			return d.MACs[(i+1)%len(d.MACs)]
		}
	}
	return d.HomeMAC()
}

// prepareInput asks for a place to be prepared.
type prepareInput struct {
	kit.ByName
	Body PlaceSpec
}

func (s *apiHandlers) postPrepare(ctx context.Context, in *prepareInput) (*kit.Body[DeviceInfo], error) {
	d, ok := s.registry.Device(in.Name)
	if !ok {
		return nil, problem(errUnknown, "path.name", in.Name)
	}
	var r reader
	at, mac := s.parsePlace(&r, d, in.Body.Port, in.Body.MAC)
	if in.Body.Port == "" {
		r.Add("port", "", wantPort)
	}
	timeout := r.within("timeout", in.Body.Timeout, s.settings.PrepareTimeout, 100*time.Millisecond, maxPrepare)
	if len(r.Faults) > 0 {
		return nil, kit.Refuse(r.Faults)
	}
	if err := s.placement.prepareAt(ctx, in.Name, at, mac, "operator", timeout); err != nil {
		return nil, problem(err, "path.name", in.Name)
	}
	return s.getDevice(ctx, &in.ByName)
}

func (s *apiHandlers) deletePrepare(ctx context.Context, in *kit.ByName) (*kit.Nothing, error) {
	err := s.queue.Do(ctx, in.Name, func(ctx context.Context) error {
		m := s.placement.mobileOf(in.Name)
		if _, ok := s.registry.Device(in.Name); !ok {
			return errUnknown
		}
		if m.hasPrepared() {
			return s.placement.dropSecond(ctx, in.Name, m, m.second)
		}
		return nil
	})
	return nil, problem(err, "path.name", in.Name)
}

// AnnounceSpec says where a device that leaves this domain is heading.
type AnnounceSpec struct {
	Domain string `json:"domain" maxLength:"63" doc:"Neighbouring domain"`
	Port   string `json:"port,omitempty" format:"dpid-port" doc:"Port of that domain where it will attach, if it is known"`
	MAC    string `json:"mac,omitempty" format:"mac" doc:"MAC address that it will use there"`
}

// announceInput asks for a device to be announced to a neighbour.
type announceInput struct {
	kit.ByName
	Body AnnounceSpec
}

func (s *apiHandlers) postAnnounce(ctx context.Context, in *announceInput) (*kit.Nothing, error) {
	d, ok := s.registry.Device(in.Name)
	if !ok {
		return nil, problem(errUnknown, "path.name", in.Name)
	}
	var r reader
	var h domain.Heading
	if in.Body.Port != "" {
		at, err := ParsePort(in.Body.Port)
		if err != nil {
			r.Add("port", in.Body.Port, wantPort)
		}
		h.At = &at
	}
	if in.Body.MAC != "" {
		if h.MAC = r.mac("mac", in.Body.MAC); !d.Has(h.MAC) {
			r.Add("mac", in.Body.MAC, "one of the device's MAC addresses: %v", d.MACs)
		}
	}
	if len(r.Faults) > 0 {
		return nil, kit.Refuse(r.Faults)
	}
	if s.domain == nil {
		return nil, api.NotFound("body.domain", in.Body.Domain, "no neighbours are configured")
	}
	return nil, problem(s.origin.Announce(ctx, in.Name, in.Body.Domain, h), "path.name", in.Name)
}

func (s *apiHandlers) deleteAnnounce(ctx context.Context, in *kit.ByName) (*kit.Nothing, error) {
	if s.domain == nil {
		return nil, api.NotFound("path.name", in.Name, "no neighbours are configured")
	}
	return nil, problem(s.origin.Abandon(ctx, in.Name), "path.name", in.Name)
}
