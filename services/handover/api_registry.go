package handover

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// ClassInfo is a class as the API shows it.
type ClassInfo struct {
	Name   string `json:"name"`
	Origin string `json:"origin" enum:"file,api" doc:"Where it is declared and can be changed: the configuration file or the API"`
	ClassSpec
}

// PoolInfo is a pool as the API shows it.
type PoolInfo struct {
	Name   string `json:"name"`
	Origin string `json:"origin" enum:"file,api" doc:"Where it is declared and can be changed: the configuration file or the API"`
	PoolSpec
	Router      string `json:"router,omitempty" doc:"MAC address by which ARP for the gateway is answered; empty while the router has not been found"`
	Size        int    `json:"size" doc:"Addresses that it gives out"`
	Held        int    `json:"held" doc:"Addresses that are not free now"`
	Quarantined int    `json:"quarantined" doc:"Addresses that a client has declined"`
}

// registerDeclared adds the operations on classes, pools and devices.
func (s *apiHandlers) registerDeclared(r kit.REST) {
	classes := kit.Resource[registry.Class, ClassSpec, ClassInfo]{
		Collection: s.registry.ClassItems, Path: "classes", ByPath: true, Parse: parseNamed(ClassSpec.Parse), Show: classInfos,
	}
	classes.Register(r)
	pools := kit.Resource[registry.Pool, PoolSpec, PoolInfo]{
		Collection: s.registry.PoolItems, Path: "pools", ByPath: true, Parse: parseNamed(PoolSpec.Parse), Show: s.poolInfos,
	}
	pools.Register(r)
	devices := kit.Resource[registry.Device, DeviceSpec, DeviceInfo]{
		Collection: s.registry.DeviceItems, Path: "devices", ByPath: true, Parse: parseNamed(s.parseDevice), Show: s.deviceInfos, Undeclared: s.removeGuest,
	}
	devices.RegisterChanges(r)
	kit.Register(r, http.MethodGet, "devices", "List the devices, with those that nobody declared", s.getDevices)
	kit.Register(r, http.MethodGet, "devices/{name}", "Show a device", s.getDevice)
}

// parseNamed adapts the parser of a specification to what a Resource needs.
func parseNamed[S, T any](parse func(S, string) (T, kit.Faults)) func(string, S) (string, T, error) {
	return func(name string, spec S) (string, T, error) {
		v, faults := parse(spec, name)
		return name, v, faults.Err()
	}
}

func classInfos(all []kit.Item[registry.Class]) []ClassInfo {
	out := make([]ClassInfo, len(all))
	for i, x := range all {
		c := x.Value
		out[i] = ClassInfo{Name: x.Name, Origin: api.Origin(x.Configured), ClassSpec: ClassSpec{
			Policy: cmp.Or(string(c.Policy), string(registry.PolicySaving)), Trigger: string(c.Trigger), Ports: toStrings(c.Ports),
		}}
		if c.Overlap > 0 {
			out[i].Overlap = c.Overlap.String()
		}
	}
	return out
}

func (s *apiHandlers) poolInfos(all []kit.Item[registry.Pool]) []PoolInfo {
	usage := s.registry.Usage()
	out := make([]PoolInfo, len(all))
	for i, x := range all {
		out[i] = s.poolInfo(x.Name, x.Configured, usage[x.Name])
	}
	return out
}

// poolInfo returns a pool as the API shows it.
func (s *apiHandlers) poolInfo(name string, configured bool, u registry.Usage) PoolInfo {
	p, _ := s.registry.Pool(name)
	i := PoolInfo{Name: name, Origin: api.Origin(configured), Size: u.Size, Held: u.Held, Quarantined: u.Quarantined, PoolSpec: PoolSpec{
		Prefix: p.Prefix.String(), Gateway: p.Gateway.String(), Server: p.ServerID().String(), LeaseTime: p.LeaseTime.String(),
		MTU: p.MTU, Domain: p.Domain, Learn: p.Learn, Class: p.Class, Home: p.Home, DNS: toStrings(p.DNS),
	}}
	if p.First.IsValid() {
		i.First, i.Last = p.First.String(), p.Last.String()
	}
	router := p.GatewayMAC
	if router.IsZero() {
		router = s.guards.gateways.lookup(p.Gateway)
	} else {
		i.GatewayMAC = router.String()
	}
	if !router.IsZero() {
		i.Router = router.String()
	}
	return i
}

// LeaseInfo is a lease as the API shows it.
type LeaseInfo struct {
	Device  string     `json:"device"`
	IP      string     `json:"ip"`
	Pool    string     `json:"pool"`
	State   string     `json:"state" enum:"active,released" doc:"A released lease is remembered, so that the device gets its address again"`
	Granted time.Time  `json:"granted"`
	Expires *time.Time `json:"expires,omitempty"`
	MAC     string     `json:"mac,omitempty" doc:"Hardware address by which the client asked"`
	Client  string     `json:"client_id,omitempty" doc:"Client identifier, hex"`
	At      string     `json:"at,omitempty" doc:"Port where the device is"`
	Peer    string     `json:"peer,omitempty" doc:"Domain that the device is in, if that is another one"`
}

// leaseInfo returns a lease as the API shows it.
func (s *apiHandlers) leaseInfo(l registry.Lease) LeaseInfo {
	i := LeaseInfo{
		Device: l.Device, IP: l.IP.String(), Pool: l.Pool, State: "released", Granted: l.Granted.UTC(),
		Client: fmt.Sprintf("%x", l.ClientID),
	}
	if a := l.Attachment; a != nil {
		i.At, i.Peer = a.At.String(), a.Peer
	}
	if l.Active(s.now()) {
		i.State = "active"
	}
	if !l.Expires.IsZero() {
		e := l.Expires.UTC()
		i.Expires = &e
	}
	if !l.MAC.IsZero() {
		i.MAC = l.MAC.String()
	}
	return i
}

func (s *apiHandlers) getLeases(context.Context, *kit.Nothing) (*kit.Body[[]LeaseInfo], error) {
	out := []LeaseInfo{}
	for _, l := range s.registry.Leases() {
		out = append(out, s.leaseInfo(l))
	}
	return &kit.Body[[]LeaseInfo]{Body: out}, nil
}

func (s *apiHandlers) deleteLease(ctx context.Context, in *kit.ByName) (*kit.Nothing, error) {
	err := s.queue.Do(ctx, in.Name, func(ctx context.Context) error {
		l, ok := s.registry.Lease(in.Name)
		if !ok || !l.Active(s.now()) {
			return registry.ErrUnknown
		}
		if err := s.registry.Lessor.Release(ctx, in.Name); err != nil {
			return err
		}
		return s.placement.detach(ctx, in.Name, l.IP, l.Attachment, "the operator")
	})
	if err == nil {
		s.notifyLeft(in.Name)
	}
	return nil, problem(err, "path.name", in.Name)
}
