package handover

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/predict"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// MoveSpec is the body of an order to a device: where to go, and for how long.
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

// maxPrepare bounds how long a request may have a place prepared, and maxHold how long it may keep the
// device on the interface that it names.
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

// nextMAC returns the MAC address of the interface that a device is told to use. It is the current
// interface if at names a port, and otherwise the next one in the device's list. A device without a
// place is told to use its first one.
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

// AnnounceSpec describes where a device that leaves this domain is heading.
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

// PositionSpec is a report of where a device is and how it moves.
type PositionSpec struct {
	Device   string     `json:"device" maxLength:"128" doc:"Name of the device"`
	X        float64    `json:"x,omitempty" doc:"Metres east on the plane of the coverage"`
	Y        float64    `json:"y,omitempty" doc:"Metres north on that plane"`
	Lat      *float64   `json:"lat,omitempty" doc:"Degrees; with lon, instead of x and y"`
	Lon      *float64   `json:"lon,omitempty" doc:"Degrees"`
	Speed    float64    `json:"speed" doc:"Metres per second"`
	Heading  float64    `json:"heading" doc:"Degrees clockwise from north"`
	Accuracy float64    `json:"accuracy,omitempty" doc:"Error of the position in metres"`
	Time     *time.Time `json:"time,omitempty" doc:"When it was there. Default: now"`
}

// PositionInfo is the latest report of a device, with the prediction made from it.
type PositionInfo struct {
	Device   string     `json:"device"`
	X        float64    `json:"x"`
	Y        float64    `json:"y"`
	Speed    float64    `json:"speed"`
	Heading  float64    `json:"heading"`
	Time     time.Time  `json:"time"`
	Covers   []string   `json:"covers" doc:"Attachment points that cover it there"`
	Next     string     `json:"next,omitempty" doc:"Attachment point where it goes next"`
	Port     *Port      `json:"port,omitempty" doc:"Its port"`
	Enter    *time.Time `json:"enter,omitempty" doc:"When it gets there"`
	Leave    *time.Time `json:"leave,omitempty" doc:"When it leaves the present one"`
	At       *time.Time `json:"prepare_at,omitempty" doc:"When preparing has to begin"`
	Prepared bool       `json:"prepared" doc:"Whether that time has come"`
	Error    string     `json:"error,omitempty" doc:"Why it could not be prepared"`
}

// CellInfo describes the area that an attachment point covers.
type CellInfo struct {
	Name      string       `json:"name"`
	Port      Port         `json:"port"`
	Peer      string       `json:"peer,omitempty" doc:"Domain that the cell belongs to"`
	Interface int          `json:"interface,omitempty" doc:"Which of its MAC addresses a device uses there, from 1; 0: the one with which it arrives"`
	Centre    *[2]float64  `json:"centre,omitempty"`
	Radius    float64      `json:"radius,omitempty"`
	Polygon   [][2]float64 `json:"polygon,omitempty"`
}

func (s *apiHandlers) getCoverage(context.Context, *kit.Nothing) (*kit.Body[[]CellInfo], error) {
	out := []CellInfo{}
	for _, c := range s.settings.Cells {
		b, _ := s.borderAt(c.Place)
		i := CellInfo{Name: c.Name, Port: Port{c.Place}, Peer: b.Peer, Interface: c.Interface, Radius: c.Area.Radius}
		for _, p := range c.Area.Polygon {
			i.Polygon = append(i.Polygon, [2]float64{p.X, p.Y})
		}
		if i.Radius > 0 {
			i.Centre = &[2]float64{c.Area.Centre.X, c.Area.Centre.Y}
		}
		out = append(out, i)
	}
	return &kit.Body[[]CellInfo]{Body: out}, nil
}

func (s *apiHandlers) getPositions(context.Context, *kit.Nothing) (*kit.Body[[]PositionInfo], error) {
	out := []PositionInfo{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.placement.motions)) {
		out = append(out, s.positionInfo(id, s.placement.motions[id]))
	}
	return &kit.Body[[]PositionInfo]{Body: out}, nil
}

// positionInfo returns a device's latest report and prediction. The caller holds the lock.
func (s *apiHandlers) positionInfo(id string, m *motion) PositionInfo {
	r := m.report
	i := PositionInfo{Device: id, X: r.At.X, Y: r.At.Y, Speed: r.Speed, Heading: r.Heading, Time: r.Time.UTC(), Covers: []string{}, Error: m.err}
	for _, c := range s.settings.Cells {
		if c.Area.Contains(r.At) {
			i.Covers = append(i.Covers, c.Name)
		}
	}
	if c := m.choice; !c.None() {
		enter, leave, at := c.Enter.UTC(), c.Leave.UTC(), c.PrepareAt.UTC()
		i.Next, i.Port, i.Enter, i.Leave, i.At, i.Prepared = c.Name, &Port{c.Next}, &enter, &leave, &at, !s.now().Before(c.PrepareAt)
	}
	return i
}

// positionsInput reports positions.
type positionsInput struct {
	Body []PositionSpec `minItems:"1" maxItems:"10000"`
}

// postPositions stores reports. It checks all of them before it uses the first.
func (s *apiHandlers) postPositions(_ context.Context, in *positionsInput) (*kit.Body[[]PositionInfo], error) {
	if s.predictor.coverage == nil {
		return nil, problem(errNoCoverage, "body", len(in.Body))
	}
	var r reader
	motions := make([]predict.Motion, len(in.Body))
	devices := make([]registry.Device, len(in.Body))
	for i, p := range in.Body {
		motions[i], devices[i] = s.parsePosition(&r, fmt.Sprintf("[%d].", i), p)
	}
	if len(r.Faults) > 0 {
		return nil, kit.Refuse(r.Faults)
	}
	out := []PositionInfo{}
	for i, m := range motions {
		if _, err := s.predictor.moved(devices[i], m); err != nil {
			return nil, problem(err, fmt.Sprintf("body[%d]", i), in.Body[i].Device)
		}
		s.mu.Lock()
		out = append(out, s.positionInfo(devices[i].ID, s.placement.motions[devices[i].ID]))
		s.mu.Unlock()
	}
	return &kit.Body[[]PositionInfo]{Body: out}, nil
}

// parsePosition parses a report; at is the report's place in the request, for faults.
func (s *apiHandlers) parsePosition(r *reader, at string, p PositionSpec) (predict.Motion, registry.Device) {
	d, ok := s.registry.Device(p.Device)
	if !ok {
		r.Add(at+"device", p.Device, "the name of a device that is registered")
	}
	m, err := s.predictor.motionOf(p.X, p.Y, p.Lat, p.Lon)
	if err != nil {
		r.Add(at+"lat", p.Lat, "%s", err.Error())
	}
	m.Speed, m.Heading, m.Accuracy, m.Time = p.Speed, p.Heading, p.Accuracy, s.now()
	if p.Time != nil {
		m.Time = *p.Time
	}
	if err := m.Check(); err != nil {
		r.Add(at+"speed", p.Speed, "%s", err.Error())
	}
	if age := s.now().Sub(m.Time); age > s.settings.Predict.MaxAge || age < -s.settings.Predict.MaxSkew {
		r.Add(at+"time", m.Time, "a time of the last %v", s.settings.Predict.MaxAge)
	}
	return m, d
}
