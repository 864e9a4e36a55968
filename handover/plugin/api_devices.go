package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/service"
)

// DeviceInfo is a device as the API shows it. Its key is never shown.
type DeviceInfo struct {
	ID       string     `json:"id"`
	Origin   string     `json:"origin" enum:"file,api,learned,neighbour" doc:"Where it stands, and is changed: the configuration file or the API; or else that it was learned, or is a neighbour's"`
	MACs     []string   `json:"macs"`
	Class    string     `json:"class"`
	Policy   string     `json:"policy" doc:"How it is moved"`
	Trigger  string     `json:"trigger" doc:"What may move it"`
	Pool     string     `json:"pool,omitempty"`
	Static   string     `json:"static_ip,omitempty" doc:"Address to which it is bound"`
	Keyed    bool       `json:"keyed" doc:"It has a key to sign its requests with"`
	Ports    []string   `json:"ports,omitempty"`
	Home     string     `json:"home,omitempty" doc:"Domain of a visitor"`
	Learned  bool       `json:"learned,omitempty" doc:"Nobody registered it"`
	IP       string     `json:"ip,omitempty" doc:"Address that it has now"`
	Expires  *time.Time `json:"expires,omitempty"`
	At       *Spot      `json:"at,omitempty" doc:"Where it is"`
	Since    *time.Time `json:"since,omitempty" doc:"Since when"`
	Path     []string   `json:"path,omitempty" doc:"Way from the root to it: switch/in>out"`
	Second   *Spot      `json:"second,omitempty" doc:"Another place that is served: prepared, or just left"`
	Prepared bool       `json:"prepared,omitempty" doc:"The second place is prepared"`
	Rules    int        `json:"rules" doc:"Rules that it has in the switches"`
	Daemon   bool       `json:"daemon" doc:"Its daemon listens for orders"`
	Error    string     `json:"error,omitempty" doc:"Why its rules are not as they should be"`
}

func (s *Service) deviceInfo(d registry.Device) DeviceInfo {
	c := s.registry.ClassOf(d)
	i := DeviceInfo{
		ID: d.ID, Origin: originOf(d), Class: d.Class, Policy: string(c.Policy), Trigger: string(c.Trigger), Pool: d.Pool,
		Keyed: len(d.Key) > 0, Ports: portStrings(d.Ports), Home: d.Home, Learned: d.Learned, MACs: []string{}, Daemon: s.orders.listening(d.ID),
	}
	if i.Class == "" {
		i.Class = registry.DefaultClass
	}
	for _, m := range d.MACs {
		i.MACs = append(i.MACs, m.String())
	}
	if d.IP.IsValid() {
		i.Static = d.IP.String()
	}
	if l, ok := s.registry.Lease(d.ID); ok && l.Active(s.now()) {
		i.IP, i.At = l.IP.String(), spotOf(l.Attachment)
		if !l.Expires.IsZero() {
			e := l.Expires.UTC()
			i.Expires = &e
		}
		if l.Attachment != nil {
			since := l.Attachment.Since.UTC()
			i.Since = &since
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mobiles[d.ID]; m != nil {
		i.Path, i.Rules, i.Error = hops(m.plan.Path), len(m.rules), m.err
		if x := m.second; x != nil {
			i.Second, i.Prepared = &Spot{Port: Port{x.place.At}, MAC: x.place.MAC, Peer: x.peer}, x.prepared
		}
	}
	return i
}

// originOf is where a device comes from.
func originOf(d registry.Device) string {
	switch {
	case d.Home != "":
		return "neighbour"
	case d.Learned:
		return "learned"
	}
	return api.Origin(d.Configured)
}

type devicesInput struct {
	Port  string `query:"port" doc:"Only devices at this port, or at the ports of this switch"`
	Class string `query:"class" doc:"Only devices of this class"`
}

func (s *Service) getDevices(_ context.Context, in *devicesInput) (*service.Body[[]DeviceInfo], error) {
	out := []DeviceInfo{}
	for _, d := range s.registry.Devices() {
		i := s.deviceInfo(d)
		if in.Class != "" && in.Class != i.Class {
			continue
		}
		if in.Port != "" && (i.At == nil || in.Port != i.At.Port.String() && in.Port != i.At.Port.Switch.String()) {
			continue
		}
		out = append(out, i)
	}
	return &service.Body[[]DeviceInfo]{Body: out}, nil
}

func (s *Service) getDevice(_ context.Context, in *ByID) (*service.Body[DeviceInfo], error) {
	d, ok := s.registry.Device(in.ID)
	if !ok {
		return nil, answer(errUnknown, "path.id", in.ID)
	}
	return &service.Body[DeviceInfo]{Body: s.deviceInfo(d)}, nil
}

type putDeviceInput struct {
	ByID
	Body DeviceSpec
}

func (s *Service) putDevice(ctx context.Context, in *putDeviceInput) (*service.Body[DeviceInfo], error) {
	d, faults := in.Body.Parse(in.ID)
	if len(faults) > 0 {
		return nil, refuse(faults)
	}
	if err := s.live().PutDevice(ctx, d); err != nil {
		return nil, answerChange(err, "devices", "path.id", in.ID)
	}
	d, _ = s.registry.Device(in.ID)
	return &service.Body[DeviceInfo]{Body: s.deviceInfo(d)}, nil
}

// register puts a device into the registry. One that is attached by an address
// that it no longer has must show up again; else its rules follow what has changed.
func (s *Service) register(ctx context.Context, d registry.Device) error {
	if err := s.registry.PutDevice(ctx, d); err != nil {
		return err
	}
	l, ok := s.registry.Lease(d.ID)
	if !ok || l.Attachment == nil || !l.Active(s.now()) {
		return nil
	}
	if l.Attachment.Peer == "" && !d.Has(l.Attachment.MAC) {
		if err := s.registry.SetAttachment(ctx, d.ID, nil); err != nil {
			return err
		}
		return s.detach(ctx, d.ID, l.IP, l.Attachment, "its MAC address was taken from it")
	}
	return s.replan(ctx, d.ID, "the device was changed")
}

func (s *Service) deleteDevice(ctx context.Context, in *ByID) (*service.Nothing, error) {
	err := s.lanes.do(ctx, in.ID, func(ctx context.Context) error {
		switch d, ok := s.registry.Device(in.ID); {
		case !ok:
			return errUnknown
		case d.Configured:
			return registry.ErrConfigured
		}
		l, _ := s.registry.Lease(in.ID)
		if err := s.detach(ctx, in.ID, l.IP, l.Attachment, "the operator"); err != nil {
			return fmt.Errorf("remove its rules: %w", err)
		}
		return s.registry.DeleteDevice(ctx, in.ID)
	})
	if err == nil {
		s.tellLeft(in.ID)
		s.publish("device.removed", map[string]any{"device": in.ID})
	}
	return nil, answerChange(err, "devices", "path.id", in.ID)
}

// RootInfo is a root as the API shows it.
type RootInfo struct {
	Name string `json:"name"`
	Port Port   `json:"port"`
	Peer string `json:"peer,omitempty" doc:"Neighbouring domain behind it; empty for an uplink"`
	Up   bool   `json:"up"`
}

func (s *Service) getRoots(context.Context, *service.Nothing) (*service.Body[[]RootInfo], error) {
	out := []RootInfo{}
	for _, r := range s.settings.Roots {
		out = append(out, RootInfo{Name: r.Name, Port: Port{r.At}, Peer: r.Peer, Up: s.portUp(r.At)})
	}
	return &service.Body[[]RootInfo]{Body: out}, nil
}

// Status is the state of the service.
type Status struct {
	Ready    bool     `json:"ready" doc:"The start is over: devices of before have their rules"`
	Domain   string   `json:"domain,omitempty"`
	Classes  int      `json:"classes"`
	Pools    int      `json:"pools"`
	Devices  int      `json:"devices"`
	Leases   int      `json:"leases" doc:"Leases that hold now"`
	Attached int      `json:"attached" doc:"Devices at edge ports here"`
	Away     int      `json:"away" doc:"Devices in other domains"`
	Prepared int      `json:"prepared" doc:"Places prepared for devices"`
	Waiting  int      `json:"waiting" doc:"Work that waits for its turn"`
	Daemons  int      `json:"daemons" doc:"Daemons that listen for orders"`
	Errors   []string `json:"errors" doc:"What does not work now, and what would help"`
}

func (s *Service) getStatus(context.Context, *service.Nothing) (*service.Body[Status], error) {
	return &service.Body[Status]{Body: s.status()}, nil
}

// Errors says what does not work now, a line for each.
func (s *Service) Errors() []string { return s.status().Errors }

func (s *Service) status() Status {
	st := Status{
		Domain: s.settings.Domain, Classes: len(s.registry.Classes()), Pools: len(s.registry.Pools()),
		Devices: len(s.registry.Devices()), Waiting: s.lanes.length(), Errors: []string{}, Daemons: s.orders.daemons(),
	}
	for _, l := range s.registry.Leases() {
		if !l.Active(s.now()) {
			continue
		}
		st.Leases++
		switch {
		case l.Attachment == nil:
		case l.Attachment.Peer != "":
			st.Away++
		default:
			st.Attached++
		}
	}
	for _, o := range s.offences() {
		st.Errors = append(st.Errors, o.errors()...)
	}
	st.Errors = append(st.Errors, s.strays.errors(s.now())...)
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Ready = s.ready
	for id, m := range s.mobiles {
		if m.second != nil && m.second.prepared {
			st.Prepared++
		}
		if m.err != "" {
			st.Errors = append(st.Errors, "device "+id+": "+m.err)
		}
	}
	for d, text := range s.puntErrs {
		st.Errors = append(st.Errors, "switch "+d.String()+" does not send DHCP and ARP up: "+text)
	}
	if st.Pools > 0 && !slices.ContainsFunc(s.settings.Roots, func(r Root) bool { return r.Peer == "" }) {
		st.Errors = append(st.Errors, "no root is configured: set handover.roots")
	}
	slices.Sort(st.Errors)
	return st
}
