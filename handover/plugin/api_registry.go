package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/service"
)

// ClassInfo is a class as the API shows it.
type ClassInfo struct {
	Name   string `json:"name"`
	Origin string `json:"origin" enum:"file,api" doc:"Where it stands, and is changed: the configuration file or the API"`
	ClassSpec
}

// PoolInfo is a pool as the API shows it.
type PoolInfo struct {
	Name   string `json:"name"`
	Origin string `json:"origin" enum:"file,api" doc:"Where it stands, and is changed: the configuration file or the API"`
	PoolSpec
	Router      string `json:"router,omitempty" doc:"MAC address by which ARP for the gateway is answered; empty while the router has not been found"`
	Size        int    `json:"size" doc:"Addresses that it gives out"`
	Held        int    `json:"held" doc:"Those that nobody else may get now"`
	Quarantined int    `json:"quarantined" doc:"Those that a client has declined"`
}

func classInfo(c registry.Class) ClassInfo {
	i := ClassInfo{Name: c.Name, Origin: api.Origin(c.Configured), ClassSpec: ClassSpec{Policy: string(c.Policy), Trigger: string(c.Trigger), Ports: portStrings(c.Ports)}}
	if c.Overlap > 0 {
		i.Overlap = c.Overlap.String()
	}
	return i
}

func (s *Service) poolInfo(p registry.Pool, u registry.Usage) PoolInfo {
	i := PoolInfo{Name: p.Name, Origin: api.Origin(p.Configured), Size: u.Size, Held: u.Held, Quarantined: u.Quarantined, PoolSpec: PoolSpec{
		Prefix: p.Prefix.String(), Gateway: p.Gateway.String(), Server: p.ServerID().String(), LeaseTime: p.LeaseTime.String(),
		MTU: p.MTU, Domain: p.Domain, Learn: p.Learn, Class: p.Class, Home: p.Home,
	}}
	if p.First.IsValid() {
		i.First, i.Last = p.First.String(), p.Last.String()
	}
	for _, a := range p.DNS {
		i.DNS = append(i.DNS, a.String())
	}
	router := p.GatewayMAC
	if router.IsZero() {
		router = s.gateways.find(p.Gateway)
	} else {
		i.GatewayMAC = router.String()
	}
	if !router.IsZero() {
		i.Router = router.String()
	}
	return i
}

// answerChange is answer for a change of what the configuration may have in a section.
func answerChange(err error, section, location, name string) error {
	if errors.Is(err, registry.ErrConfigured) {
		return api.Configured(location, name, Name+"."+section+"."+name)
	}
	return answer(err, location, name)
}

func (s *Service) getClasses(context.Context, *service.Nothing) (*service.Body[[]ClassInfo], error) {
	out := []ClassInfo{}
	for _, c := range s.registry.Classes() {
		out = append(out, classInfo(c))
	}
	return &service.Body[[]ClassInfo]{Body: out}, nil
}

type putClassInput struct {
	service.ByName
	Body ClassSpec
}

func (s *Service) putClass(ctx context.Context, in *putClassInput) (*service.Body[ClassInfo], error) {
	c, faults := in.Body.Parse(in.Name)
	if len(faults) > 0 {
		return nil, refuse(faults)
	}
	if err := s.live().PutClass(ctx, c); err != nil {
		return nil, answerChange(err, "classes", "path.name", in.Name)
	}
	c, _ = s.registry.Class(in.Name)
	return &service.Body[ClassInfo]{Body: classInfo(c)}, nil
}

func (s *Service) deleteClass(ctx context.Context, in *service.ByName) (*service.Nothing, error) {
	return nil, answerChange(s.registry.DeleteClass(ctx, in.Name), "classes", "path.name", in.Name)
}

func (s *Service) getPools(context.Context, *service.Nothing) (*service.Body[[]PoolInfo], error) {
	usage := map[string]registry.Usage{}
	for _, u := range s.registry.Usage() {
		usage[u.Pool] = u
	}
	out := []PoolInfo{}
	for _, p := range s.registry.Pools() {
		out = append(out, s.poolInfo(p, usage[p.Name]))
	}
	return &service.Body[[]PoolInfo]{Body: out}, nil
}

type putPoolInput struct {
	service.ByName
	Body PoolSpec
}

func (s *Service) putPool(ctx context.Context, in *putPoolInput) (*service.Body[PoolInfo], error) {
	p, faults := in.Body.Parse(in.Name)
	if len(faults) > 0 {
		return nil, refuse(faults)
	}
	if err := s.live().PutPool(ctx, p); err != nil {
		return nil, answerChange(err, "pools", "path.name", in.Name)
	}
	p, _ = s.registry.Pool(in.Name)
	for _, u := range s.registry.Usage() {
		if u.Pool == in.Name {
			return &service.Body[PoolInfo]{Body: s.poolInfo(p, u)}, nil
		}
	}
	return &service.Body[PoolInfo]{Body: s.poolInfo(p, registry.Usage{})}, nil
}

func (s *Service) deletePool(ctx context.Context, in *service.ByName) (*service.Nothing, error) {
	err := s.registry.DeletePool(ctx, in.Name)
	if err == nil {
		s.refreshView()
	}
	return nil, answerChange(err, "pools", "path.name", in.Name)
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
	Peer    string     `json:"peer,omitempty" doc:"Domain in which it is, if that is another one"`
}

func (s *Service) leaseInfo(l registry.Lease) LeaseInfo {
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

func (s *Service) getLeases(context.Context, *service.Nothing) (*service.Body[[]LeaseInfo], error) {
	out := []LeaseInfo{}
	for _, l := range s.registry.Leases() {
		out = append(out, s.leaseInfo(l))
	}
	return &service.Body[[]LeaseInfo]{Body: out}, nil
}

func (s *Service) deleteLease(ctx context.Context, in *ByID) (*service.Nothing, error) {
	err := s.lanes.do(ctx, in.ID, func(ctx context.Context) error {
		l, ok := s.registry.Lease(in.ID)
		if !ok || !l.Active(s.now()) {
			return registry.ErrUnknown
		}
		if err := s.registry.Release(ctx, in.ID); err != nil {
			return err
		}
		return s.detach(ctx, in.ID, l.IP, l.Attachment, "the operator")
	})
	if err == nil {
		s.tellLeft(in.ID)
	}
	return nil, answer(err, "path.id", in.ID)
}
