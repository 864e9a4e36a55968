package handover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// DeviceInfo is a device as the API shows it. Its key is never shown.
type DeviceInfo struct {
	ID       string     `json:"id"`
	Origin   string     `json:"origin" enum:"file,api,learned,neighbour" doc:"Where it is declared and can be changed: the configuration file or the API; or that it was learned, or belongs to a neighbour"`
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
	Path     []string   `json:"path,omitempty" doc:"Path from the border port to it: switch/in>out"`
	Second   *Spot      `json:"second,omitempty" doc:"Another place that is served: a prepared one, or the one it has just left"`
	Prepared bool       `json:"prepared,omitempty" doc:"The second place is prepared"`
	Rules    int        `json:"rules" doc:"Rules that it has in the switches"`
	Daemon   bool       `json:"daemon" doc:"Its daemon listens for orders"`
	Error    string     `json:"error,omitempty" doc:"Why its rules are not as they should be"`
}

// deviceInfo returns a device as the API shows it.
func (s *apiHandlers) deviceInfo(d registry.Device) DeviceInfo {
	c := s.registry.ClassOf(d)
	i := DeviceInfo{
		ID: d.ID, Origin: s.originOf(d), Class: cmp.Or(d.Class, registry.DefaultClass), Policy: string(c.Policy), Trigger: string(c.Trigger), Pool: d.Pool,
		Keyed: len(d.Key) > 0, Ports: toStrings(d.Ports), Home: d.Home, Learned: d.Learned, MACs: toStrings(d.MACs), Daemon: s.daemons.orders.isListening(d.ID),
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
	if m := s.placement.mobiles[d.ID]; m != nil {
		i.Path, i.Rules, i.Error = hops(m.plan.Path), len(m.rules), m.err
		if x := m.second; x != nil {
			i.Second, i.Prepared = &Spot{Port: Port{x.place.At}, MAC: x.place.MAC, Peer: x.peer}, m.hasPrepared()
		}
	}
	return i
}

// originOf returns how a device became known: by a neighbour, by learning, by the configuration or by
// the API.
func (s *apiHandlers) originOf(d registry.Device) string {
	switch {
	case d.Home != "":
		return "neighbour"
	case d.Learned:
		return "learned"
	}
	x, _ := s.registry.DeviceItems.Item(d.ID)
	return api.Origin(x.Configured)
}

// devicesInput filters the list of devices.
type devicesInput struct {
	Port  string `query:"port" doc:"Only devices at this port, or at the ports of this switch"`
	Class string `query:"class" doc:"Only devices of this class"`
}

func (s *apiHandlers) getDevices(_ context.Context, in *devicesInput) (*kit.Body[[]DeviceInfo], error) {
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
	return &kit.Body[[]DeviceInfo]{Body: out}, nil
}

func (s *apiHandlers) getDevice(_ context.Context, in *kit.ByName) (*kit.Body[DeviceInfo], error) {
	d, ok := s.registry.Device(in.Name)
	if !ok {
		return nil, problem(errUnknown, "path.name", in.Name)
	}
	return &kit.Body[DeviceInfo]{Body: s.deviceInfo(d)}, nil
}

// parseDevice parses the specification of a device. A device without a pool gets the only one.
func (s *apiHandlers) parseDevice(spec DeviceSpec, id string) (registry.Device, kit.Faults) {
	d, faults := spec.Parse(id)
	d.Pool = cmp.Or(d.Pool, s.registry.OnlyPool())
	return d, faults
}

// deviceInfos returns declared devices as the API shows them.
func (s *apiHandlers) deviceInfos(all []kit.Item[registry.Device]) []DeviceInfo {
	out := make([]DeviceInfo, len(all))
	for i, x := range all {
		d, ok := s.registry.Device(x.Name)
		if !ok {
			d = x.Value // it conflicts with another device and is not in force
		}
		out[i] = s.deviceInfo(d)
	}
	return out
}

// removeGuest removes a device that nobody declared, with its lease and its rules.
func (s *apiHandlers) removeGuest(ctx context.Context, id string) error {
	err := s.queue.Do(ctx, id, func(ctx context.Context) error {
		if _, ok := s.registry.Device(id); !ok {
			return kit.ErrUnknown
		}
		l, _ := s.registry.Lease(id)
		if err := s.placement.detach(ctx, id, l.IP, l.Attachment, "the operator"); err != nil {
			return fmt.Errorf("remove its rules: %w", err)
		}
		return s.registry.DeleteGuest(ctx, id)
	})
	if err == nil {
		s.notifyLeft(id)
		s.publish("device.removed", map[string]any{"name": id})
	}
	return err
}

// BorderInfo is a border port as the API shows it.
type BorderInfo struct {
	Name string `json:"name"`
	Port Port   `json:"port"`
	Peer string `json:"peer,omitempty" doc:"Neighbouring domain behind it; empty for an uplink"`
	Up   bool   `json:"up"`
}

func (s *apiHandlers) getBorders(context.Context, *kit.Nothing) (*kit.Body[[]BorderInfo], error) {
	out := []BorderInfo{}
	for _, r := range s.settings.Borders {
		out = append(out, BorderInfo{Name: r.Name, Port: Port{r.At}, Peer: r.Peer, Up: s.portUp(r.At)})
	}
	return &kit.Body[[]BorderInfo]{Body: out}, nil
}

// Status is the state of the service.
type Status struct {
	Ready    bool     `json:"ready" doc:"The start is complete: the devices of before have their rules"`
	Domain   string   `json:"domain,omitempty"`
	Classes  int      `json:"classes"`
	Pools    int      `json:"pools"`
	Devices  int      `json:"devices"`
	Leases   int      `json:"leases" doc:"Leases that are active now"`
	Attached int      `json:"attached" doc:"Devices at edge ports here"`
	Away     int      `json:"away" doc:"Devices in other domains"`
	Prepared int      `json:"prepared" doc:"Places prepared for devices"`
	Waiting  int      `json:"waiting" doc:"Jobs that wait in the work queue"`
	Daemons  int      `json:"daemons" doc:"Daemons that listen for orders"`
	Errors   []string `json:"errors" doc:"What does not work now, and what would help"`
}

// status returns the state of the service.
func (s *apiHandlers) status() Status {
	waiting, _ := s.queue.Load()
	st := Status{
		Domain: s.settings.Domain, Classes: len(s.registry.ClassItems.Items()), Pools: len(s.registry.Pools()),
		Devices: len(s.registry.Devices()), Waiting: waiting, Errors: []string{}, Daemons: s.daemons.orders.daemons(),
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
	for _, o := range s.guards.violations() {
		st.Errors = append(st.Errors, o.errors()...)
	}
	st.Errors = append(st.Errors, s.guards.unreachable.errors(s.now())...)
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Ready = s.ready
	for id, m := range s.placement.mobiles {
		if m.hasPrepared() {
			st.Prepared++
		}
		if m.err != "" {
			st.Errors = append(st.Errors, "device "+id+": "+m.err)
		}
	}
	for d, text := range s.guards.puntErrs {
		st.Errors = append(st.Errors, "switch "+d.String()+" does not send DHCP and ARP up: "+text)
	}
	if st.Pools > 0 && !slices.ContainsFunc(s.settings.Borders, func(r Border) bool { return r.Peer == "" }) {
		st.Errors = append(st.Errors, "no border port is configured: set handover.borders")
	}
	slices.Sort(st.Errors)
	return st
}

// handoversInput filters the list of records.
type handoversInput struct {
	Device string `query:"device" doc:"Only records of this device"`
	Kind   string `query:"kind" enum:"attach,move,prepare,detach,reroute" doc:"Only records of this kind"`
	Result string `query:"result" enum:"done,failed" doc:"Only records with this result"`
	Limit  int    `query:"limit" minimum:"1" maximum:"100000" default:"1000" doc:"Maximum number of records, the latest first"`
}

func (s *apiHandlers) getHandovers(_ context.Context, in *handoversInput) (*kit.Body[[]Record], error) {
	return &kit.Body[[]Record]{Body: s.records(*in)}, nil
}

// records returns the records that match, the latest first.
func (s *apiHandlers) records(in handoversInput) []Record {
	out := []Record{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placement.history.latest(func(r *Record) bool {
		if (in.Device == "" || r.Device == in.Device) && (in.Kind == "" || string(r.Kind) == in.Kind) && (in.Result == "" || r.Result == in.Result) {
			out = append(out, *r)
		}
		return in.Limit == 0 || len(out) < in.Limit
	})
	return out
}

// byNumber identifies a record by its number.
type byNumber struct {
	ID string `path:"id" maxLength:"20" doc:"Number of the record"`
}

func (s *apiHandlers) getHandover(_ context.Context, in *byNumber) (*kit.Body[Record], error) {
	id, err := strconv.ParseUint(in.ID, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.placement.history.at(id); err == nil && r != nil {
		return &kit.Body[Record]{Body: *r}, nil
	}
	return nil, problem(errUnknown, "path.id", in.ID)
}

// Quantiles holds three quantiles of a distribution.
type Quantiles struct {
	P50 Duration `json:"p50"`
	P99 Duration `json:"p99"`
	Max Duration `json:"max"`
}

// Stats summarises the attachments and moves whose records are kept.
type Stats struct {
	Handovers int                  `json:"handovers" doc:"Attachments and moves whose records are kept"`
	Failed    int                  `json:"failed"`
	Moves     int                  `json:"moves"`
	Seamless  int                  `json:"seamless" doc:"Moves in which packets went to both places"`
	Prepared  int                  `json:"prepared" doc:"Moves to a place that had been prepared"`
	Changes   Changes              `json:"changes" doc:"Rules changed by all of them; switches: the maximum of one"`
	Parts     map[string]Quantiles `json:"parts"`
}

func (s *apiHandlers) getStats(context.Context, *kit.Nothing) (*kit.Body[Stats], error) {
	st := Stats{Parts: map[string]Quantiles{}}
	parts := map[string][]Duration{}
	for _, r := range s.records(handoversInput{}) {
		if r.Kind != KindAttach && r.Kind != KindMove {
			continue
		}
		st.Handovers++
		if r.Result != ResultDone {
			st.Failed++
			continue
		}
		if r.Kind == KindMove {
			st.Moves++
		}
		if r.Bicast {
			st.Seamless++
		}
		if r.Prepared {
			st.Prepared++
		}
		st.Changes.add(r.Changes)
		p := r.Parts
		for name, d := range map[string]Duration{
			"t_a": p.Ta, "t_d": p.Td, "t_f": p.Tf, "t_e": p.Te, "t_c": p.Tc, "queue": p.Queue, "store": p.Store, "trigger_to_rules": p.Trigger,
		} {
			parts[name] = append(parts[name], d)
		}
	}
	for name, all := range parts {
		slices.Sort(all)
		st.Parts[name] = Quantiles{P50: all[len(all)/2], P99: all[len(all)*99/100], Max: all[len(all)-1]}
	}
	return &kit.Body[Stats]{Body: st}, nil
}
