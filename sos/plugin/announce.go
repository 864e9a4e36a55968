package plugin

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/service"
)

// postAnnounce lets an agent add itself. Who it is, its certificate says: it
// can announce only the name that the certificate carries.
func (s *Service) postAnnounce(ctx context.Context, in *service.Body[AgentSpec]) (*service.Body[AgentInfo], error) {
	who := api.Identity(ctx)
	if name, isCert := strings.CutPrefix(who, "certificate:"); isCert && name != in.Body.Name {
		return nil, service.Refuse(service.Faults{{Field: "name", Value: in.Body.Name, Want: "the name in the agent's certificate, " + name}})
	}
	r, faults := in.Body.Parse()
	if len(faults) > 0 {
		return nil, service.Refuse(faults)
	}
	s.mu.Lock()
	old := s.agents[r.Name]
	same := old != nil && old.record.same(&r)
	if same {
		old.claim = nil
	}
	s.mu.Unlock()
	if same {
		return s.showAgent(r.Name)
	}
	if faults := s.elsewhere(api.Remote(ctx), r); len(faults) > 0 {
		return nil, service.Refuse(faults)
	}
	s.mu.Lock()
	if old := s.agents[r.Name]; old != nil {
		old.claim = &claim{URL: r.URL, Addrs: r.Addrs} // newAgent refuses it; the operator is told
	}
	s.mu.Unlock()
	return s.newAgent(ctx, in.Body, true)
}

// elsewhere says whether an announcement names a control address that is not the one
// it came from: an agent's certificate must not be enough to have the controller call
// whom its holder likes. A name is refused too, since whoever answers for it may have
// it stand for another address later.
func (s *Service) elsewhere(from netip.Addr, r AgentRecord) service.Faults {
	var to netip.Addr
	if u, err := url.Parse(r.URL); err == nil {
		to, _ = netip.ParseAddr(u.Hostname())
		to = to.Unmap()
	}
	if to.IsValid() && (to == from || slices.ContainsFunc(s.opts.ControlSubnets, func(p netip.Prefix) bool { return p.Contains(to) })) {
		return nil
	}
	return service.Faults{{Field: "url", Value: r.URL, Want: fmt.Sprintf("the address that the announcement comes from, %v; for another, an operator adds the agent, or its subnet to sos.control_subnets", from)}}
}
