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

// announce adds an agent that announces itself. An agent with a certificate can announce only the
// name in that certificate.
func (r rest[C, R, L]) announce(ctx context.Context, in *kit.Body[control.AgentSpec]) (*kit.Body[AgentInfo], error) {
	who := api.Identity(ctx)
	if name, ok := strings.CutPrefix(who, "certificate:"); ok && name != in.Body.Name {
		return nil, kit.Refuse(kit.Faults{{Field: "name", Value: in.Body.Name, Want: "the name in the agent's certificate, " + name}})
	}
	rec, faults := Parse(in.Body)
	if len(faults) > 0 {
		return nil, kit.Refuse(faults)
	}
	if r.checkClaim(rec, nil) {
		return r.show(rec.Name)
	}
	if faults := r.checkControlAddress(api.Remote(ctx), rec); len(faults) > 0 {
		return nil, kit.Refuse(faults)
	}
	r.checkClaim(rec, &rec) // if the record differs, add refuses it, and Problems reports the claim
	return r.add(ctx, in.Body, true)
}

// checkClaim reports whether an agent is known exactly as it announces itself. Otherwise it keeps
// the announcement as the agent's claim.
func (r rest[C, R, L]) checkClaim(rec AgentRecord, claim *AgentRecord) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.agents[rec.Name]
	same := a != nil && a.state.sameProcess(&rec)
	if same {
		a.claim = nil
	} else if a != nil && claim != nil {
		a.claim = claim
	}
	return same
}

// checkControlAddress returns a fault if an announcement names a control address other than the one
// it came from or one of ControlSubnets. Otherwise the holder of an agent's certificate could make
// the controller connect to any address. A name is refused, too, because it may later resolve to
// another address.
func (r rest[C, R, L]) checkControlAddress(from netip.Addr, rec AgentRecord) kit.Faults {
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
