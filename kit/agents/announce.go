package agents

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
)

// announce lets an agent add itself. Who it is, its certificate says: it
// can announce only the name that the certificate carries.
func (r rest[C, R, L]) announce(ctx context.Context, in *kit.Body[control.AgentSpec]) (*kit.Body[AgentInfo], error) {
	who := api.Identity(ctx)
	if name, isCert := strings.CutPrefix(who, "certificate:"); isCert && name != in.Body.Name {
		return nil, kit.Refuse(kit.Faults{{Field: "name", Value: in.Body.Name, Want: "the name in the agent's certificate, " + name}})
	}
	rec, faults := Parse(in.Body)
	if len(faults) > 0 {
		return nil, kit.Refuse(faults)
	}
	if r.claimed(rec, nil) {
		return r.show(rec.Name)
	}
	if faults := r.elsewhere(api.Remote(ctx), rec); len(faults) > 0 {
		return nil, kit.Refuse(faults)
	}
	r.claimed(rec, &rec) // of one that is known otherwise: add refuses it, and the operator is told
	return r.add(ctx, in.Body, true)
}

// claimed says whether an agent is known as it announces itself, and keeps otherwise what it
// claims to be.
func (r rest[C, R, L]) claimed(rec AgentRecord, claim *AgentRecord) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.agents[rec.Name]
	same := a != nil && a.state.same(&rec)
	if same {
		a.claim = nil
	} else if a != nil && claim != nil {
		a.claim = claim
	}
	return same
}

// elsewhere says whether an announcement names a control address that is not the one
// it came from: an agent's certificate must not be enough to have the controller call
// whom its holder likes. A name is refused too, since whoever answers for it may have
// it stand for another address later.
func (r rest[C, R, L]) elsewhere(from netip.Addr, rec AgentRecord) kit.Faults {
	var to netip.Addr
	if u, err := url.Parse(rec.URL); err == nil {
		to, _ = netip.ParseAddr(u.Hostname())
		to = to.Unmap()
	}
	if to.IsValid() && (to == from || slices.ContainsFunc(r.ControlSubnets, func(p netip.Prefix) bool { return p.Contains(to) })) {
		return nil
	}
	section, _, _ := strings.Cut(r.Service, "/")
	return kit.Faults{{Field: "url", Value: rec.URL, Want: fmt.Sprintf("the address that the announcement comes from, %v; for another, an operator adds the agent, or its subnet to %s.control_subnets", from, section)}}
}
