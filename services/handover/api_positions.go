package handover

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/handover/predict"
	"github.com/sluice-net/sluice/services/handover/registry"
)

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

// CellInfo describes what an attachment point covers.
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

// parsePosition parses a report; at is its place in the request.
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
